"""The address that is asked most often, answered without the layers of the framework.

Routing, request and response objects and their layers cost a tiny model several times its run.
"""

from __future__ import annotations

import re
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from ..failures import refusal_of
from ..inference import Inference
from ..protocol.http_request import read_infer_request
from ..protocol.http_response import infer_response, refusal_body
from .bodies import JSON_LENGTH_HEADER, Readers, json_length, read_body, written
from .disconnects import while_connected
from .refusals import JSON_TYPE, refusal_headers, send_answer, unknown_address

__all__ = ["InferAddress"]

_ADDRESS = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_RAW_TYPE = "application/octet-stream"


class InferAddress:
    """Answers requests for an inference; all others go to the app."""

    def __init__(self, app: ASGIApp, inference: Inference, readers: Readers) -> None:
        self._app, self._inference, self._readers = app, inference, readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = _ADDRESS.fullmatch(_local_path(scope)) if scope["type"] == "http" else None
        if place is None:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            body = unknown_address(scope["method"], scope["path"])
            await send_answer(send, 405, body, JSON_TYPE, {"allow": "POST"})
            return
        status, kind, headers = 200, JSON_TYPE, {}
        try:
            body, head = await self._infer(place[1], place[2] or "", scope, receive)
        except Exception as error:
            refusal = refusal_of(error)
            status, body = refusal.status, refusal_body(str(refusal))
            headers = refusal_headers(refusal)
        else:
            if head is not None:
                kind, headers = _RAW_TYPE, {JSON_LENGTH_HEADER.decode(): str(head)}
        await send_answer(send, status, body, kind, headers)

    async def _infer(
        self, model: str, version: str, scope: Scope, receive: Receive
    ) -> tuple[bytes, int | None]:
        """Return the body of the answer, and how long its JSON part is, if raw tensors follow."""
        inference, limits = self._inference, self._inference.limits
        served = inference.repository.find(model, version)  # before the body is read
        headers = scope["headers"]
        with inference.bodies.share() as share:
            head = json_length(headers)
            body = await read_body(headers, receive, limits, share)
            keeps_bytes = served.keeps_bytes
            read = partial(read_infer_request, body, head, limits, keeps_bytes=keeps_bytes)
            call = await self._readers.read(len(body), read)
            answer = await while_connected(inference.run(model, version, call), receive)
            return await written(answer.size_bytes, partial(infer_response, answer))


def _local_path(scope: Scope) -> str:
    """Return the path below where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
