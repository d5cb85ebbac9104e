"""The command on real sockets: Triton's own client, curl, signals, and what is refused at start."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aioinfer.__main__ import main
from unit.serving.datatypes import assert_echoed, every_datatype
from unit.serving.models import DIGITS, echo, scaled
from unit.serving.serve_process import Serving, serve

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestWarning"
)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("models")
    scaled(root / "double" / "1" / "model.onnx", 2.0)
    scaled(root / "double" / "3" / "model.onnx", 3.0)
    (root / "double" / "model.toml").write_text('versions = "all"\n')
    echo(root / "echo" / "1" / "model.onnx")
    with serve(root, "-d", "REFERENCE") as started:
        yield started


def test_the_ready_line_tells_addresses_and_models(serving: Serving) -> None:
    assert serving.ready.startswith("ready: http://127.0.0.1:")
    assert serving.ready.rstrip().endswith("serves double 1, double 3, echo 1")


def test_tritons_client_finds_server_and_models(serving: Serving) -> None:
    http = pytest.importorskip("tritonclient.http")
    with http.InferenceServerClient(serving.host) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("double")
        assert client.is_model_ready("double", "3")
        assert not client.is_model_ready("triple")
        assert client.get_server_metadata()["name"] == "aioinfer"
        assert client.get_model_metadata("double")["versions"] == ["1", "3"]
        index = client.get_model_repository_index()
        assert [(item["name"], item["version"], item["state"]) for item in index] == [
            ("double", "1", "READY"),
            ("double", "3", "READY"),
            ("echo", "1", "READY"),
        ]


@pytest.mark.parametrize("is_binary", [True, False])
def test_tritons_client_infers(serving: Serving, is_binary: bool) -> None:
    http = pytest.importorskip("tritonclient.http")
    array = np.float32([[1, 2, 3]])
    with http.InferenceServerClient(serving.host) as client:
        given = http.InferInput("x", [1, 3], "FP32")
        given.set_data_from_numpy(array, binary_data=is_binary)
        wanted = http.InferRequestedOutput("y", binary_data=is_binary)
        for version, factor in (("", 3), ("1", 2), ("3", 3)):
            told = client.infer(
                "double", [given], outputs=[wanted], model_version=version, request_id="r"
            )
            np.testing.assert_array_equal(told.as_numpy("y"), array * factor)
            assert told.get_response()["id"] == "r"
        waiting = [client.async_infer("double", [given], model_version="1") for _ in range(20)]
        for answer in waiting:
            np.testing.assert_array_equal(answer.get_result().as_numpy("y"), array * 2)


def test_tritons_client_sends_and_gets_every_datatype(serving: Serving) -> None:
    http = pytest.importorskip("tritonclient.http")
    arrays, inputs = every_datatype(http.InferInput)
    with http.InferenceServerClient(serving.host) as client:
        told = client.infer("echo", inputs)
    assert_echoed(told, arrays)


async def test_tritons_asyncio_client_infers(serving: Serving) -> None:
    aio = pytest.importorskip("tritonclient.http.aio")
    array = np.float32([[1, 2, 3]])
    async with aio.InferenceServerClient(serving.host) as client:
        given = aio.InferInput("x", [1, 3], "FP32")
        given.set_data_from_numpy(array)
        told = await client.infer("double", [given], model_version="1")
        np.testing.assert_array_equal(told.as_numpy("y"), array * 2)


def test_tritons_client_is_told_what_is_wrong(serving: Serving) -> None:
    http = pytest.importorskip("tritonclient.http")
    utils = pytest.importorskip("tritonclient.utils")
    with http.InferenceServerClient(serving.host) as client:
        given = http.InferInput("x", [1, 2], "FP32")
        given.set_data_from_numpy(np.zeros((1, 2), np.float32))
        with pytest.raises(utils.InferenceServerException, match=r"inputs\[0\]\.shape"):
            client.infer("double", [given])
        with pytest.raises(utils.InferenceServerException, match="there is no model 'nothing'"):
            client.infer("nothing", [given])


def curl(*arguments: str) -> str:
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "30", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_infers(serving: Serving) -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [[1, 2, 3]]}
    url = f"{serving.url}/v2/models/double/versions/1/infer"
    told = json.loads(curl("-d", json.dumps({"inputs": [entry]}), url))
    assert told["outputs"][0]["data"] == [2, 4, 6]


def test_a_head_that_does_not_end_is_answered_and_closed(serving: Serving) -> None:
    host, port = serving.host.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nx: ")
        try:
            for _ in range(64):
                connection.sendall(b"a" * 4096)
        except OSError:
            pass  # it has closed already
        try:
            told = connection.recv(4096)
        except ConnectionResetError:
            told = b""
    assert told[:12] in (b"HTTP/1.1 431", b"")
    assert b"aioinfer" in curl(f"{serving.url}/v2").encode()  # and others are served


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(number: int) -> None:
    with serve(DIGITS, "-d", "REFERENCE") as started:
        assert started.ready.rstrip().endswith("serves digits 1")
        assert started.end(number) == 0


def test_a_file_that_is_no_model_ends_it_with_1(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(AssertionError, match=r"ended with 1: (?s:.*)error: "), serve(path):
        pass


@pytest.mark.exhaustive
def test_a_port_that_is_taken_ends_it_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = pytest.raises(AssertionError, match=f"127.0.0.1:{port}")
        with told, serve(DIGITS, "-d", "REFERENCE", "--port", port):
            pass


@pytest.mark.exhaustive
def test_a_token_comes_from_the_environment() -> None:
    with serve(DIGITS, "-d", "REFERENCE", environment={"AIOINFER_TOKEN": "secret"}) as started:
        assert "bearer token" in curl(f"{started.url}/v2")
        assert "aioinfer" in curl("-H", "Authorization: Bearer secret", f"{started.url}/v2")


@pytest.mark.exhaustive
def test_requests_are_logged_to_a_file(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with serve(DIGITS, "-d", "REFERENCE", "--access-log", str(log)) as started:
        curl(f"{started.url}/v2/models/digits")
        assert started.end(signal.SIGTERM) == 0
    (line,) = log.read_text(encoding="utf-8").splitlines()
    told = json.loads(line)
    assert (told["call"], told["status"], told["model"]) == (
        "GET /v2/models/digits",
        200,
        "digits",
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        ("--memory-limit", "1"),
        ("--poll", "1"),
        ("--max-bodies-mb", "1"),
        ("--poll", "1", "--ray"),
        ("--functions", "base64", "--ray"),
    ],
)
def test_options_that_contradict_the_rest_end_it(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(DIGITS), "--port", "0", *options]) == 1
    assert re.search(f"error: .*{options[0]}", capsys.readouterr().err)
