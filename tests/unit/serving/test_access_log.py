"""The access log: one line for each request of either wire, whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import aioinfer
from aioinfer.serving.access_log import AccessLog
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.rpc.proto_text import message_classes
from aioinfer.serving.rpc.service import make_server
from aioinfer.serving.web.application import application
from aioinfer.serving.web.watch import model_of
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import scaled

X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
SERVICE = "/inference.GRPCInferenceService"


class Lines(list[dict[str, Any]]):
    """A log that a test reads, whose clocks stand still."""

    def __init__(self) -> None:
        super().__init__()
        times = iter(range(1000))
        self.log = AccessLog(self.add, lambda: 0.5, lambda: next(times) / 8)

    def add(self, line: str) -> None:
        assert line.endswith("\n")
        assert line.count("\n") == 1
        self.append(json.loads(line))


async def test_each_request_over_http_is_a_line(core: aioinfer.Core, tmp_path: Path) -> None:
    lines = Lines()
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        inference = Inference(FixedRepository(network), Limits(), access_log=lines.log)
        client = AsgiClient(application(inference, "secret"))
        body = json.dumps({"inputs": [X]}).encode()
        path = "/v2/models/double/versions/1/infer"
        reply = await client.post(path, body, authorization="Bearer secret")
        assert reply.status == 200
        await client.post("/v2/models/double/infer", body)
        await client.get("/v2/models/" + "\n\x1b[31m" * 500, authorization="Bearer secret")
        await client.get("/v2/health/live")
    assert lines[0] == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "duration_ms": 125.0,
        "wire": "http",
        "client": "testclient",
        "call": f"POST {path}",
        "status": 200,
        "model": "double",
        "version": "1",
        "received_bytes": len(body),
        "sent_bytes": len(reply.body),
        "trace_id": "",
    }
    assert [line["status"] for line in lines] == [200, 401, 404, 200]
    assert len(lines[2]["call"]) == 500


async def test_each_call_over_grpc_is_a_line(core: aioinfer.Core, tmp_path: Path) -> None:
    lines = Lines()
    classes = message_classes()
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        inference = Inference(FixedRepository(network), Limits(), access_log=lines.log)
        server = make_server(inference, "secret")
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        metadata = (("authorization", "Bearer secret"),)
        good = classes["ModelInferRequest"](model_name="double")
        good.inputs.add(name="x", datatype="FP32", shape=[1, 3])
        good.raw_input_contents.append(bytes(np.ones(3, np.float32)))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
            await infer(good.SerializeToString(), metadata=metadata)
            for data, given in ((b"\xff", metadata), (b"", ())):
                with pytest.raises(grpc.aio.AioRpcError):
                    await infer(data, metadata=given)
            stream = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(
                iter([good.SerializeToString()] * 2), metadata=metadata
            )
            assert len([told async for told in stream]) == 2
        await server.stop(None)
    told = [(line["call"], line["code"], line["model"]) for line in lines]
    assert told == [
        ("ModelInfer", "OK", "double"),
        ("ModelInfer", "INVALID_ARGUMENT", ""),
        ("ModelInfer", "UNAUTHENTICATED", ""),
        ("ModelStreamInfer", "OK", "double"),
    ]
    size = len(good.SerializeToString())
    assert [line["received_bytes"] for line in lines] == [size, 1, 0, 2 * size]
    assert lines[0]["client"].startswith("ipv4:127.0.0.1:")


async def test_a_client_that_leaves_is_a_line(core: aioinfer.Core, tmp_path: Path) -> None:
    lines = Lines()
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        inference = Inference(FixedRepository(network), Limits(), access_log=lines.log)
        client = AsgiClient(application(inference))
        call = asyncio.ensure_future(
            client.send("POST", "/v2/models/double/infer", [b"{"], {}, length=9)
        )
        reply = await call
        assert reply.status == lines[0]["status"] == 400


def test_a_line_that_cannot_be_written_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    def full(line: str) -> None:
        raise OSError(28, "No space left on device")

    log = AccessLog(full)
    for _ in range(3):
        log.tell(0.0, call="a")
    assert caplog.text.count("the access log cannot be written") == 1


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v2/models/m/infer", ("m", "")),
        ("/here/v2/models/m/versions/3/infer", ("m", "3")),
        ("/v2/models/m", ("m", "")),
        ("/v2/models/m/versions", ("m", "")),
        ("/v2", ("", "")),
    ],
)
def test_an_address_names_its_model(path: str, told: tuple[str, str]) -> None:
    assert model_of(path) == told
