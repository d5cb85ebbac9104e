"""The curl lines of docs/serving.md run as they stand, and so does its example."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import aioinfer
from aioinfer.serving.rpc.proto_text import message_classes
from docs.example_files import EXAMPLES, example
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import DIGITS
from unit.serving.serve_process import serve

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_lines_run_unmodified(tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "model.onnx")
    lines = re.findall(r"^curl .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 7
    with serve(tmp_path / "model.onnx", "-d", "REFERENCE", "--grpc-port", "0") as started:
        assert len(started.addresses) == 2
        assert started.addresses[1].startswith("grpc://127.0.0.1:")
        (tmp_path / ".curlrc").write_text(f'connect-to = "localhost:8000:{started.host}"\n')
        environment = {**os.environ, "CURL_HOME": str(tmp_path)}
        told = [
            subprocess.run(
                ["bash", "-c", line], env=environment, capture_output=True, text=True, check=True
            ).stdout
            for line in lines
        ]
    ready, server, model, stats, metrics, small, other = told
    assert ready == ""
    assert json.loads(server)["name"] == "aioinfer"
    assert json.loads(model)["inputs"][0]["shape"] == [-1, 1, 8, 8]
    assert json.loads(stats)["model_stats"][0]["inference_count"] == 0
    assert 'nv_inference_count{model="model",version="1"} 0.0' in metrics
    assert json.loads(small)["error"].startswith("inputs[0].shape: ")
    assert json.loads(other)["error"].startswith("inputs[0].name: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestWarning")
def test_the_lines_for_tritons_client_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tritonclient.http")
    shutil.copy(DIGITS, tmp_path / "model.onnx")
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    by_request, by_region = (block for block in blocks if "import tritonclient" in block)
    names: dict[str, Any] = {}
    options = ("-d", "REFERENCE", "--shared-memory-prefix", "app_")
    with serve(tmp_path / "model.onnx", *options) as started:
        try:
            exec(by_request.replace("localhost:8000", started.host), names)
            exec(by_region, names)
        finally:
            if "region" in names:
                names["shm"].destroy_shared_memory_region(names["region"])
            names["client"].close()
            names.clear()
            gc.collect()  # its sockets warn, though they are closed
    _, first, second = capsys.readouterr().out.split("[[")
    assert first == second


def test_the_example_answers_beside_its_own_page() -> None:
    with aioinfer.Core() as core:
        client = AsgiClient(example("09_serve.py").make_service(core))

        async def ask() -> tuple[int, str]:
            page = await client.get("/")
            model = await client.get("/inference/v2/models/digits")
            return page.status, model.json()["name"]

        assert asyncio.run(ask()) == (200, "digits")


def test_pictures_are_decoded_and_digits_named_by_the_functions_of_the_example(
    tmp_path: Path,
) -> None:
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    model = tmp_path / "digits"
    (model / "1").mkdir(parents=True)
    shutil.copy(DIGITS, model / "1" / "model.onnx")
    folder = EXAMPLES / "10_served_functions"
    shutil.copy(folder / "model.toml", model)
    drawn = np.zeros((64, 64), np.uint8)
    drawn[8:56, 28:36] = 255  # a one
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, "JPEG")
    with serve(
        tmp_path,
        *("-d", "REFERENCE", "--functions", "digit_functions", "--grpc-port", "0"),
        environment={"PYTHONPATH": str(folder)},
    ) as started:
        infer = f"{started.url}/v2/models/digits/infer"
        head = raw_head(4 + len(file.getvalue()))
        body = head + len(file.getvalue()).to_bytes(4, "little") + file.getvalue()
        asked = urllib.request.Request(
            infer, body, {"Inference-Header-Content-Length": str(len(head))}
        )
        with urllib.request.urlopen(asked, timeout=60) as reply:
            digit, probability = json.load(reply)["outputs"]
        assert digit["data"] == ["1"]
        assert 0.1 < probability["data"][0] <= 1
        wrong = raw_head(8) + (4).to_bytes(4, "little") + b"none"
        asked = urllib.request.Request(
            infer, wrong, {"Inference-Header-Content-Length": str(len(raw_head(8)))}
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(asked, timeout=60)
        assert caught.value.code == 400
        message = message_classes()["ModelInferRequest"](model_name="digits")
        message.inputs.add(name="file", datatype="BYTES", shape=[1])
        message.raw_input_contents.append(body[len(head) :])
        address = started.addresses[1].partition("://")[2]
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            data = call(message.SerializeToString(), timeout=60)
        answer = message_classes()["ModelInferResponse"].FromString(data)
        assert answer.raw_output_contents[0] == b"\x01\0\0\x001"


def raw_head(size: int) -> bytes:
    entry = {"name": "file", "datatype": "BYTES", "shape": [1]}
    return json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": size}}]}).encode()
