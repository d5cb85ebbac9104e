"""What a gRPC call must pass before its message is received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from ..web.guard import is_token
from .watch import RpcWatch

__all__ = ["Admission"]

_OPEN = ("ServerLive", "ServerReady")


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without the token; their messages stay with the client.

    Whether the server is live and ready is answered without a token, for probes.
    """

    def __init__(self, token: str, watch: RpcWatch) -> None:
        self._token, self._watch = token, watch

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        call: str = handler_call_details.method
        if call.rpartition("/")[2] not in _OPEN:
            metadata = handler_call_details.invocation_metadata or ()
            given = [value for key, value in metadata if key == "authorization"]
            if len(given) != 1 or not is_token(given[0].encode(), self._token):
                return self._refusing(call)
        return await continuation(handler_call_details)

    def _refusing(self, call: str) -> Any:
        async def refuse(messages: Any, context: Any) -> None:
            with self._watch.around(call.rpartition("/")[2], context) as facts:
                facts.code = "UNAUTHENTICATED"
                text = "the bearer token is missing or wrong"
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)

        # One that takes a stream: grpc receives a single message before it calls the handler.
        return grpc.stream_stream_rpc_method_handler(refuse)
