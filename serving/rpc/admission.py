"""What a gRPC call must pass before its message is received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from ..web.guard import is_token

__all__ = ["Admission"]

_OPEN = ("ServerLive", "ServerReady")


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without the token; their messages stay with the client.

    Whether the server is live and ready is told without a token, for probes.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        # One that takes a stream: grpc receives a single message before it calls the handler.
        self._refusing = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        call: str = handler_call_details.method
        if call.rpartition("/")[2] not in _OPEN:
            metadata = handler_call_details.invocation_metadata or ()
            given = [value for key, value in metadata if key == "authorization"]
            if len(given) != 1 or not is_token(given[0].encode(), self._token):
                return self._refusing
        return await continuation(handler_call_details)


async def _refuse(messages: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is missing or wrong")
