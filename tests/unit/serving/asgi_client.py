"""A client of an ASGI application in the same process: no sockets, no threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        error: str = self.json()["error"]
        return error


class AsgiClient:
    """Sends requests to an application; ``leave`` is an event at which the client goes away."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.send("GET", path, [], headers)

    async def post(self, path: str, body: object = b"", **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, [content], headers)

    async def send(
        self,
        method: str,
        path: str,
        pieces: Sequence[bytes],
        headers: Mapping[str, str],
        leave: asyncio.Event | None = None,
        length: int | None = None,
    ) -> Reply:
        """Send the body in these pieces. ``length``: what Content-Length says, if not the truth."""
        raw = [
            (name.lower().replace("_", "-").encode(), text.encode())
            for name, text in headers.items()
        ]
        size = sum(map(len, pieces)) if length is None else length
        if method == "POST" and size >= 0:
            raw.append((b"content-length", str(size).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": raw,
            "server": ("testserver", 80),
            "client": ("testclient", 1),
            "state": {},
        }
        waiting = list(pieces) or [b""]
        started: dict[str, Any] = {}
        body = bytearray()
        gone = leave or asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if waiting:
                piece = waiting.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(waiting)}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def reply(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, reply)
        given = {name.decode(): value.decode() for name, value in started["headers"]}
        return Reply(started["status"], given, bytes(body))
