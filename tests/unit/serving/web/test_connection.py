"""One connection on a real socket, under bounds that are short."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from anyio.lowlevel import checkpoint
from starlette.responses import Response
from uvicorn.server import ServerState

from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.web.connection import connection_class

ANSWER_BYTES = 64 << 20  # more than the system keeps for a client that does not read


@pytest.mark.timeout(60)
async def test_a_client_that_does_not_read_its_answer_is_let_go() -> None:
    async def endpoint(scope: object, receive: object, send: object) -> None:
        await Response(bytes(ANSWER_BYTES))(scope, receive, send)  # type: ignore[arg-type]

    connection = connection_class(Limits(body_s=0.05))
    config = uvicorn.Config(endpoint, http=connection, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: connection(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
        0,
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        while state.connections or state.tasks:
            await checkpoint()
        writer.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(ANSWER_BYTES)
