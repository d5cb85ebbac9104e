"""Long bodies go from the connection to their place, under the same bounds as short ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.web.application import application
from aioinfer.serving.web.bodies import reads_at_once
from aioinfer.serving.web.connection import connection_class
from unit.serving.listening import listening
from unit.serving.models import scaled

ROWS = 60_000
X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)


def request_of(array: np.ndarray[Any, Any], *, length: int | None = None) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": list(array.shape)}
    parameters = {"parameters": {"binary_data_size": array.nbytes}}
    document = {"inputs": [{**entry, **parameters}], "parameters": {"binary_data_output": True}}
    text = json.dumps(document).encode()
    size = len(text) + array.nbytes if length is None else length
    head = (
        f"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n"
        f"inference-header-content-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text + array.tobytes()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = (
        int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")
    )
    return int(head[9:12]), await reader.readexactly(length)


@pytest.fixture
def inference(tmp_path: Path) -> Any:
    limits = Limits(body_bytes=4 << 20, bodies_bytes=4 << 20)
    with aioinfer.Core() as core:
        network = core.load_network(scaled(tmp_path / "m.onnx", 2.0), "REFERENCE", name="m")
        yield Inference(FixedRepository(network, {}), limits)


@pytest.mark.parametrize("piece", [1 << 22, 7000])
async def test_they_arrive_whole_one_after_another(inference: Inference, piece: int) -> None:
    app, connection = application(inference), connection_class(inference.limits)
    async with listening(app, connection) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for factor in (1, 3):
            sent = request_of(X * factor)
            for place in range(0, len(sent), piece):
                writer.write(sent[place : place + piece])
                await writer.drain()
            status, body = await read_answer(reader)
            assert status == 200
            np.testing.assert_array_equal(
                np.frombuffer(body[-X.nbytes :], np.float32), X.ravel() * factor * 2
            )
        writer.write(request_of(X) + request_of(X[:1]) + request_of(X * 2))
        answers = [await read_answer(reader) for _ in range(3)]
        assert [status for status, _ in answers] == [200, 200, 200]
        assert answers[2][1].endswith((X * 4).tobytes())
        assert inference.bodies.taken_bytes == 0
        writer.close()


async def test_one_that_others_leave_no_room_for_is_refused_on_its_way(
    inference: Inference,
) -> None:
    app, connection = application(inference), connection_class(inference.limits)
    async with listening(app, connection) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = request_of(X)
        writer.write(sent[: len(sent) // 2])
        while inference.bodies.taken_bytes < len(sent) // 4:
            await checkpoint()
        inference.bodies.taken_bytes += 4 << 20
        writer.write(sent[len(sent) // 2 :])
        status, body = await read_answer(reader)
        assert (status, b"fill the" in body) == (503, True)
        inference.bodies.taken_bytes -= 4 << 20
        writer.write(request_of(X[:1]))
        assert (await read_answer(reader))[0] == 200
        assert inference.bodies.taken_bytes == 0
        writer.close()


async def test_a_client_that_leaves_on_the_way_leaves_nothing(inference: Inference) -> None:
    app, connection = application(inference), connection_class(inference.limits)
    async with listening(app, connection) as (port, state):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = request_of(X)
        writer.write(sent[: len(sent) // 2])
        while inference.bodies.taken_bytes < len(sent) // 4:
            await checkpoint()
        writer.transport.abort()
        while state.connections or state.tasks:
            await checkpoint()
        assert inference.bodies.taken_bytes == 0


@pytest.mark.parametrize(
    ("text", "size", "length", "is_soon"),
    [
        (b"{}", 10, None, True),
        (b'"FP32"', 1 << 20, 6, True),
        (b'"FP32"', 1 << 20, None, False),  # all of it is JSON
        (b'"FP32"', 8 << 20, 6, False),  # much to copy, where it is not aligned
        (b'"BYTES"', 1 << 20, 7, False),
        (b'"BYT\\u0045S"', 1 << 20, 13, False),
        (b"1" * 70_000, 1 << 20, 70_000, False),
    ],
)
def test_what_takes_time_to_read_is_not_read_on_the_loop(
    text: bytes, size: int, length: int | None, *, is_soon: bool
) -> None:
    body = memoryview(text + bytes(size - len(text)))
    assert reads_at_once(body, length) is is_soon
