"""The address that is asked most often, answered without the layers of the framework.

Routing, request and response objects and their layers cost a tiny model several times its run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from ...runtime.loops.inline_turn import begin_turn
from ..failures import refusal_of
from ..inference import Inference
from ..protocol.http_request import read_infer_request
from ..protocol.http_response import infer_response, refusal_body
from ..protocol.limits import AT_ONCE_BYTES
from .answers import JSON_TYPE, send_answer, send_tensors
from .bodies import BodyHeaders, Readers, read_body, reads_at_once, written
from .disconnects import while_connected
from .refusals import refusal_headers, server_ends, unknown_address

__all__ = ["InferAddress"]

_ADDRESS = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


class InferAddress:
    """Answers requests for an inference; all others go to the app.

    One that is cancelled while ``is_ending`` says so is answered 503.
    """

    def __init__(
        self,
        app: ASGIApp,
        inference: Inference,
        readers: Readers,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app, self._inference, self._readers = app, inference, readers
        self._is_ending = is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = _ADDRESS.fullmatch(_local_path(scope)) if scope["type"] == "http" else None
        if place is None:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            body = unknown_address(scope["method"], scope["path"])
            await send_answer(send, 405, body, JSON_TYPE, {"allow": "POST"})
            return
        begin_turn()
        try:
            body, json_length = await self._infer(place[1], place[2] or "", scope, receive)
        except asyncio.CancelledError:
            if not self._is_ending():
                raise
            refusal = server_ends()
        except Exception as error:
            refusal = refusal_of(error)
        else:
            await send_tensors(scope, send, body, json_length)
            return
        body = refusal_body(str(refusal))
        await send_answer(send, refusal.status, body, JSON_TYPE, refusal_headers(refusal))

    async def _infer(
        self, model: str, version: str, scope: Scope, receive: Receive
    ) -> tuple[bytes, int | None]:
        """Return the body of the answer, and how long its JSON part is, if raw tensors follow."""
        inference, limits = self._inference, self._inference.limits
        served = inference.repository.find(model, version)  # before the body is read
        headers = BodyHeaders.of(scope["headers"])
        with inference.bodies.share() as share:
            body = await read_body(headers, receive, limits, share, scope.get("extensions"))
            given, keeps_bytes = (body, headers.json_length, limits), served.keeps_bytes
            regions = inference.regions
            if reads_at_once(body, headers.json_length):
                call = read_infer_request(*given, keeps_bytes=keeps_bytes, regions=regions)
            else:
                read = partial(read_infer_request, *given, keeps_bytes=keeps_bytes, regions=regions)
                call = await self._readers.read(len(body), read)
            answer = await while_connected(inference.run(model, version, call), receive)
            if answer.size_bytes <= AT_ONCE_BYTES:
                return infer_response(answer)
            return await written(answer.size_bytes, partial(infer_response, answer))


def _local_path(scope: Scope) -> str:
    """Return the path below where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
