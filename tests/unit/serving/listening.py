"""An application on a real socket, by our own connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState


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


def made_by(
    endpoint: ASGIApp, connection: Callable[..., Any], state: ServerState
) -> Callable[[], asyncio.BaseProtocol]:
    config = uvicorn.Config(
        endpoint, http=cast(Any, connection), ws="none", lifespan="off", log_config=None
    )
    config.load()
    return lambda: connection(config=config, server_state=state, app_state={})
