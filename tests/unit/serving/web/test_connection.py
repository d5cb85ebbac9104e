"""One connection on a real socket, under bounds that are short."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
import uvloop
from anyio.lowlevel import checkpoint
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.web.answers import send_tensors
from aioinfer.serving.web.connection import connection_class
from aioinfer.serving.web.handshakes import SecureListener

ANSWER_BYTES = 64 << 20  # more than the system keeps for a client that does not read


@asynccontextmanager
async def listening(
    endpoint: ASGIApp, connection: Callable[..., Any]
) -> AsyncIterator[tuple[int, ServerState]]:
    """Answer connections on a port; yields it, and what is open."""
    state = ServerState()
    made = made_by(endpoint, connection, state)
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], state


@asynccontextmanager
async def secured(
    endpoint: ASGIApp, context: ssl.SSLContext, limits: Limits
) -> AsyncIterator[tuple[int, ServerState]]:
    """Do the same with TLS."""
    state = ServerState()
    made = made_by(endpoint, connection_class(limits), state)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = SecureListener(
            listener,
            context,
            made,
            state.connections,
            limit=limits.connection_count,
            within_s=limits.head_s,
        )
        yield listener.getsockname()[1], state
        server.close()
        await server.wait_closed()


def made_by(
    endpoint: ASGIApp, connection: Callable[..., Any], state: ServerState
) -> Callable[[], asyncio.BaseProtocol]:
    config = uvicorn.Config(
        endpoint, http=cast(Any, connection), ws="none", lifespan="off", log_config=None
    )
    config.load()
    return lambda: connection(config=config, server_state=state, app_state={})


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_every_request_of_a_client_that_leaves_is_told() -> None:
    """The one under way, too, when others have come behind it."""
    begun, told = asyncio.Event(), asyncio.Event()

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            begun.set()
        told.set()

    async with listening(endpoint, connection_class(Limits())) as (port, state):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET * 3)
        await begun.wait()
        writer.close()
        await told.wait()
        while state.connections or state.tasks:
            await checkpoint()


@pytest.mark.parametrize(
    "ahead", [GET * 100, b"POST" + GET[3:-2] + b"content-length: 9999999\r\n\r\n"]
)
async def test_what_comes_ahead_of_answers_is_bounded(ahead: bytes) -> None:
    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async with listening(endpoint, connection_class(Limits())) as (port, state):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + ahead)
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b"a" * 10_000)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        while state.connections or state.tasks:
            await checkpoint()


@pytest.fixture
def certified(tmp_path: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    where = ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
    subprocess.run([*command, *where], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def test_handshakes_count_as_connections_and_end(certified: ssl.SSLContext) -> None:
    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"served")(scope, receive, send)

    limits = Limits(connection_count=2)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with secured(endpoint, certified, limits) as (port, state):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""  # one too many is closed at once
        writer.close()
        for _, writer in silent:
            writer.close()
        served = b""
        while not served:  # the others have their end behind them soon
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
                writer.write(GET[:-2] + b"connection: close\r\n\r\n")
                served = await reader.read()
                writer.close()
        assert served.endswith(b"served")
        while state.connections:
            await checkpoint()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_connect_on_either_loop(certified: ssl.SSLContext, factory: Any) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    async def one(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(GET[:-2] + b"connection: close\r\n\r\n")
        told = await reader.read()
        writer.close()
        return told

    async def ask() -> None:
        async with secured(Response(b"served"), certified, Limits()) as (port, _):
            for told in await asyncio.gather(*(one(port) for _ in range(20))):
                assert told.endswith(b"served")

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(ask())


async def test_a_handshake_that_does_not_come_ends(certified: ssl.SSLContext) -> None:
    async with secured(Response(b""), certified, Limits(head_s=0.01)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_client_that_does_not_read_its_answer_is_let_go() -> None:
    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(bytes(ANSWER_BYTES))(scope, receive, send)

    connection = connection_class(Limits(body_s=0.05))
    async with listening(endpoint, connection) as (port, state):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        while state.connections or state.tasks:
            await checkpoint()
        writer.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(ANSWER_BYTES)


async def whole(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a body as long as the request's, as an inference is answered."""
    body = b"y" * int(dict(scope["headers"]).get(b"x-length", b"3"))
    await receive()
    await send_tensors(scope, send, body, 1)


async def exchange(port: int, request: bytes, count: int = 1) -> bytes:
    """Send what may be several requests; return all of their answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    told = b""
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"\ncontent-length: (\d+)", head)
        told += head + await reader.readexactly(int(length))
    writer.close()
    return told


@pytest.mark.parametrize("length", [0, 3, 200_000])
async def test_an_answer_that_is_written_whole_is_what_two_messages_are(length: int) -> None:
    async def in_two(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"].clear()
        await whole(scope, receive, send)

    request = b"GET / HTTP/1.1\r\nhost: x\r\nx-length: %d\r\n\r\n" % length
    for head in (request, request.replace(b"1.1", b"1.0")):
        told = []
        for endpoint in (whole, in_two):
            async with listening(endpoint, connection_class(Limits())) as (port, _):
                told.append(await exchange(port, head))
        first, second = (re.sub(b"date: [^\\r]*", b"", each) for each in told)
        assert first == second
        assert first.endswith(b"y" * length)
        assert first.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (b"connection: close" in first) == (head is not request)


async def test_answers_written_whole_keep_the_order_of_requests() -> None:
    requests = [
        b"GET / HTTP/1.1\r\nhost: x\r\nx-length: %d\r\n\r\n" % length for length in (5, 1, 9)
    ]
    async with listening(whole, connection_class(Limits())) as (port, _):
        told = await exchange(port, b"".join(requests), len(requests))
    assert re.findall(rb"(?<=\r\n\r\n)y+", told) == [b"y" * 5, b"y", b"y" * 9]


async def test_a_connection_that_has_ended_is_not_held_by_its_last_request() -> None:
    ended: list[bool] = []

    class Seen(connection_class(Limits())):  # type: ignore[misc]
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            ended.append("extensions" in self.scope)

    async with listening(whole, Seen) as (port, _):
        await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        while not ended:
            await checkpoint()
    assert ended == [False]
