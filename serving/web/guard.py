"""What a request must pass before anything else looks at it, and what is sent to it at the end."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..protocol.http_response import refusal_body
from ..protocol.limits import Limits
from .refusals import server_ends

__all__ = ["CutOff", "Guard", "is_token"]

_OPEN = ("/v2/health/live", "/v2/health/ready")


class Guard:
    """Answers requests with too many headers, or without the token; the rest goes to the app.

    That the server is live and ready is answered without a token, for probes, and so is the page,
    which says nothing by itself.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self._app, self._limits, self._token = app, limits, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > self._limits.header_count:
            await _refuse(send, 431, f"more than {self._limits.header_count} headers")
        elif self._token is None or _is_open(scope):
            await self._app(scope, receive, send)
        else:
            given = [value for name, value in headers if name == b"authorization"]
            if len(given) == 1 and is_token(given[0], self._token):
                await self._app(scope, receive, send)
            else:
                await _refuse(send, 401, "the bearer token is missing or wrong")


class CutOff:
    """Answers 503 where the app is cancelled while ``is_ending``, unless its answer has begun."""

    def __init__(self, app: ASGIApp, is_ending: Callable[[], bool]) -> None:
        self._app, self._is_ending = app, is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if has_begun or not self._is_ending():
                raise
            ends = server_ends()
            await _refuse(send, ends.status, str(ends))


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.endswith(_OPEN) or path == f"{scope.get('root_path', '')}/"


def is_token(authorization: bytes, token: str) -> bool:
    """Return whether a header's value carries the token; in constant time."""
    return hmac.compare_digest(authorization, b"Bearer " + token.encode())


async def _refuse(send: Send, status: int, message: str) -> None:
    body = refusal_body(message)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
