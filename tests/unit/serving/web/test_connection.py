"""One connection on a real socket, under bounds that are short."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from anyio.lowlevel import checkpoint
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.web.answers import send_tensors
from aioinfer.serving.web.connection import connection_class
from aioinfer.serving.web.handshakes import SecureListener
from unit.serving.listening import listening, made_by

ANSWER_BYTES = 64 << 20  # more than the system keeps for a client that does not read


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


async def answers_to(sent: bytes, limits: Limits | None = None, *, ends: bool = True) -> bytes:
    """Send bytes to an application that answers bodies back; return all that comes."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        body, has_more = b"", True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        told = scope["method"].encode() + b" " + scope["path"].encode() + b" " + body
        await Response(told)(scope, receive, send)

    async with listening(endpoint, connection_class(limits or Limits())) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent if not ends else sent + LAST)
        told = b""
        with contextlib.suppress(ConnectionError):
            told = await reader.read()
        writer.close()
        return told


LAST = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x00\x01",
        b"GET /v2 HTTP/1.1\r\nhost : x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        POST.replace(b"host: x", b"transfer-encoding: chunked"),
        POST.replace(b"host: x", b"content-length: 5"),
    ],
)
async def test_what_is_no_http_is_told_as_the_protocol_tells_errors(wrong: bytes) -> None:
    head, _, body = (await answers_to(wrong, ends=False)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in head
    assert json.loads(body) == {"error": "what was sent is no HTTP request"}


async def test_garbage_behind_requests_does_not_cost_their_answers() -> None:
    told = await answers_to(POST + GET + b"\x00garbage" + GET, ends=False)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200"]
    assert told.endswith(b"GET / ")


async def test_garbage_in_a_body_is_refused() -> None:
    head = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    told = await answers_to(head + b"2\r\nab\r\nzz\r\n", ends=False)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"400"]
    told = await answers_to(GET + head + b"2\r\nab\r\nzz\r\n", ends=False)
    assert b" 400 " not in told  # which the client would take for the answer to its first


@pytest.mark.parametrize("offer", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("count", [1, 3])
async def test_an_offer_of_another_protocol_is_passed_over(offer: bytes, count: int) -> None:
    """Clients that could speak HTTP/2 send it with their first request, and its body."""
    sent = POST.replace(b"host: x", b"host: x\r\nConnection: Upgrade\r\nUpgrade: " + offer)
    whole = await answers_to(sent * count)
    assert whole.count(b"POST /p body") == count
    assert whole.endswith(b"GET /last ")
    assert (await answers_to(GET.replace(b"host", b"connection: upgrade\r\nupgrade"))).endswith(
        b"GET /last "
    )


async def test_the_body_behind_an_offer_is_no_request_when_it_comes_later() -> None:
    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        await Response(scope["path"].encode())(scope, receive, send)

    hidden = b"GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n"
    head = b"POST /p HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
    async with listening(endpoint, connection_class(Limits())) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(hidden))
        for place in range(0, len(hidden), 5):
            await writer.drain()
            await checkpoint()
            writer.write(hidden[place : place + 5])
        writer.write(LAST)
        told = await reader.read()
        writer.close()
    assert b"hidden" not in told
    assert told.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"x: y\r\n" * 12, b"431"),
        (b"x: " + b"y" * 3000 + b"\r\n", b"431"),
        (b"x: " + b"y" * 900 + b"\r\n", b"200"),
        (b"x: y\r\n" * 5, b"200"),
    ],
)
async def test_a_head_that_comes_at_once_is_bounded_as_well(headers: bytes, status: bytes) -> None:
    limits = Limits(head_bytes=2000, header_count=10)
    told = await answers_to(GET[:-2] + headers + b"\r\n", limits)
    assert told[9:12] == status
    assert (await answers_to(GET.replace(b"/", b"/" + b"a" * 3000, 1), limits))[9:12] == b"431"


async def test_a_body_in_very_many_chunks_is_refused() -> None:
    head = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    few = await answers_to(head + b"1\r\na\r\n" * 1000 + b"0\r\n\r\n")
    assert few.startswith(b"HTTP/1.1 200")
    many = await answers_to(head + b"1\r\na\r\n" * 20_000, ends=False)
    assert many == b"" or b"too many chunks" in many


async def test_requests_behind_others_begin_one_in_a_turn() -> None:
    """So one that comes alone does not stand behind all that other clients sent at once."""
    turn, begun = 0, list[int]()

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(turn)
        await Response(b"")(scope, receive, send)

    async with listening(endpoint, connection_class(Limits())) as (port, _):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in clients:
            writer.write(GET * 5)
        while len(begun) < 40:
            await checkpoint()
            turn += 1
        for _, writer in clients:
            writer.close()
    counts = [begun.count(each) for each in set(begun)]
    assert max(counts) <= 9  # as many as there are clients, and one
    assert counts.count(1) >= 20


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
