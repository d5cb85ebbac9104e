"""Triton's clients over ``aioinfer serve --ray``, which they cannot tell from one process."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unit.serving.serve_process import Serving, serve

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its messages are older than the runtime
    http = pytest.importorskip("tritonclient.http")
    http_aio = pytest.importorskip("tritonclient.http.aio")
    grpc = pytest.importorskip("tritonclient.grpc")
    grpc_aio = pytest.importorskip("tritonclient.grpc.aio")
    from tritonclient.utils import InferenceServerException

pytest.importorskip("ray", reason="Ray is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LONG_S = 5.0
WITHIN_S = 60.0
X = np.float32([[1, 2, 3]])


@pytest.fixture(scope="module")
def serving(cluster: str, models: Path) -> Iterator[Serving]:
    """The command as the ingress of one replica."""
    options = ["-d", "CPU", "--functions", "served_places", "--grpc-port", "0"]
    with serve(models, *options, "--ray", "--ray-address", cluster) as started:
        yield started
        assert started.end(signal.SIGTERM) == 0


def address(serving: Serving, wire: str) -> str:
    return serving.addresses[wire == "grpc"].partition("://")[2]


def page(serving: Serving) -> dict[str, Any]:
    with urllib.request.urlopen(f"{serving.url}/page.json", timeout=30) as reply:
        told: dict[str, Any] = json.load(reply)
    return told


def count(serving: Serving, name: str) -> int:
    """Return a number of the page of ``double``, which is at most half a second old."""
    (entry,) = [each for each in page(serving)["models"] if each["model"] == "double"]
    found: int = entry[name]
    return found


def of_double(module: Any, seconds: float = 0.0) -> list[Any]:
    inputs = []
    for name, array in (("x", X), ("seconds", np.float32([seconds]))):
        made = module.InferInput(name, list(array.shape), "FP32")
        made.set_data_from_numpy(array)
        inputs.append(made)
    return inputs


def of_triple(module: Any) -> list[Any]:
    return of_double(module)[:1]


@pytest.mark.parametrize(("wire", "module"), [("http", http), ("grpc", grpc)])
def test_a_blocking_client_works(serving: Serving, wire: str, module: Any) -> None:
    with module.InferenceServerClient(address(serving, wire)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("double")
        named = {"as_json": True} if wire == "grpc" else {}
        assert client.get_server_metadata(**named)["name"] == "aioinfer"
        assert "sequence" not in client.get_server_metadata(**named)["extensions"]
        metadata = client.get_model_metadata("double", **named)
        assert [each["name"] for each in metadata["outputs"]] == ["y", "pid", "node"]
        told = client.infer("double", of_double(module), request_id="r")
        np.testing.assert_array_equal(told.as_numpy("y"), X * 2)
        np.testing.assert_array_equal(
            client.infer("triple", of_triple(module)).as_numpy("y"), X * 3
        )
        statistics = client.get_inference_statistics("triple", **named)["model_stats"]
        assert int(statistics[0]["inference_count"]) >= 1
        index = client.get_model_repository_index(**named)
        states = index["models"] if wire == "grpc" else index
        assert {each["state"] for each in states} == {"READY"}
        with pytest.raises(InferenceServerException, match=r"inputs\[0\]\.name"):
            client.infer("counter", of_triple(module))
        with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
            client.infer("nothing", of_triple(module))
        with pytest.raises(InferenceServerException, match=r"answered|[Dd]eadline"):
            client.infer("double", of_double(module, LONG_S), timeout=200_000)


@asynccontextmanager
async def opened(module: Any, serving: Serving, wire: str) -> AsyncIterator[Any]:
    client = module.InferenceServerClient(address(serving, wire))
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize(("wire", "module"), [("http", http_aio), ("grpc", grpc_aio)])
async def test_an_asyncio_client_works(serving: Serving, wire: str, module: Any) -> None:
    async with opened(module, serving, wire) as client:
        assert await client.is_server_ready()
        metadata = await client.get_model_metadata("triple")
        name = metadata.name if wire == "grpc" else metadata["name"]
        assert name == "triple"
        answers = await asyncio.gather(
            *(client.infer("triple", of_triple(module)) for _ in range(8))
        )
        for told in answers:
            np.testing.assert_array_equal(told.as_numpy("y"), X * 3)
        with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
            await client.infer("nothing", of_triple(module))


def cancelled_http(serving: Serving) -> None:
    client = http.InferenceServerClient(address(serving, "http"), network_timeout=0.5)
    with pytest.raises(Exception, match="timed out"):
        client.infer("double", of_double(http, LONG_S))
    client.close()


def cancelled_grpc(serving: Serving) -> None:
    with grpc.InferenceServerClient(address(serving, "grpc")) as client:
        answers: list[Any] = []
        running = client.async_infer(
            "double", of_double(grpc, LONG_S), lambda result, error: answers.append(error)
        )
        until(lambda: count(serving, "running") == 1)
        running.cancel()
        until(lambda: bool(answers))
        assert "CANCELLED" in str(answers[0].status())


async def cancelled_aio(serving: Serving, wire: str, module: Any) -> None:
    async with opened(module, serving, wire) as client:
        running = asyncio.create_task(client.infer("double", of_double(module, LONG_S)))
        await asyncio.to_thread(until, lambda: count(serving, "running") == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


CANCELS: dict[str, Callable[[Serving], None]] = {
    "http": cancelled_http,
    "grpc": cancelled_grpc,
    "http.aio": lambda serving: asyncio.run(cancelled_aio(serving, "http", http_aio)),
    "grpc.aio": lambda serving: asyncio.run(cancelled_aio(serving, "grpc", grpc_aio)),
}


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)  # the server is another process


@pytest.mark.parametrize("client", CANCELS)
def test_what_a_client_cancels_ends(serving: Serving, client: str) -> None:
    before = count(serving, "cancelled")
    CANCELS[client](serving)
    until(lambda: count(serving, "cancelled") == before + 1 and count(serving, "running") == 0)


def test_answers_of_a_generation_come_by_grpc(serving: Serving) -> None:
    told: list[Any] = []
    with grpc.InferenceServerClient(address(serving, "grpc")) as client:
        client.start_stream(lambda result, error: told.append((result, error)))
        client.async_stream_infer("triple", of_triple(grpc))
        until(lambda: len(told) == 3)
        client.stop_stream()
    assert [error for _, error in told] == [None] * 3
    last = [result.get_response().parameters["triton_final_response"] for result, _ in told]
    assert [each.bool_param for each in last] == [False, False, True]
