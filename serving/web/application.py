"""The ASGI application: the protocol's addresses, each a few lines around what is pure."""

from __future__ import annotations

import math
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, aclosing
from functools import partial
from typing import TypeVar

from anyio import CancelScope
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ...runtime.network.executable_network import ExecutableNetwork
from ..failures import refusal_of
from ..inference import Inference
from ..protocol.call import Answer, InferCall
from ..protocol.describing import model_configuration, model_metadata
from ..protocol.fields import Fields
from ..protocol.generate_json import (
    generate_document,
    joined_documents,
    read_generate_request,
    server_sent,
)
from ..protocol.generation import Generation
from ..protocol.in_flight import BodyShare
from ..protocol.json_text import read_json
from ..protocol.limits import Limits
from ..protocol.refusal import RefusedError
from ..protocol.statistics import counts_of, statistics_entry
from ..regions import SharedRegions
from ..repository.fixed import FixedRepository
from ..spans import NO_SPANS
from .answers import JSON_TYPE
from .bodies import BodyHeaders, Readers, read_body, written
from .direct import InferAddress
from .disconnects import while_connected
from .guard import CutOff, Guard
from .metrics import CONTENT_TYPE, metrics_text
from .page import PageState, page
from .refusals import unknown_address
from .routes import both, get, post, versioned
from .shared_memory import region_routes
from .watch import Watch

__all__ = ["app", "application"]

T = TypeVar("T")

_PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
_METRICS_FRESH_S = 0.1  # a client that asks more often, as a flood does, gets the same again


def app(
    networks: Mapping[str, ExecutableNetwork] | Iterable[ExecutableNetwork] | ExecutableNetwork,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    generations: Mapping[str, Generation] | None = None,
    shared_memory_prefixes: Sequence[str] = (),
) -> ASGIApp:
    """Make an ASGI application that serves networks by the Open Inference Protocol.

    Any ASGI server runs it, and frameworks mount it: ``fastapi_app.mount("/inference", app)``. The
    networks stay the caller's, which closes them. ``token``: wanted as a bearer token of every
    request. ``generations``: by name, how those generate that do. ``shared_memory_prefixes``: of
    the keys of shared memory that clients may register; without any they may not. Raises
    PropertyError for two networks of one name, for generations that do not fit and for what is no
    prefix, NotSupportedError for a network that the protocol cannot carry.
    """
    repository = FixedRepository(networks, generations or {})
    bounds = limits or Limits()
    regions = SharedRegions(shared_memory_prefixes, bounds) if shared_memory_prefixes else None
    return application(Inference(repository, bounds, regions=regions), token)


def application(
    inference: Inference,
    token: str | None = None,
    *,
    is_ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Make an ASGI application that answers for an inference.

    is_ending: tells whether a request that is cancelled is cut off by the end of the server, and
    answered 503.
    """
    guarded = Guard(_Endpoints(inference).dispatching(is_ending), inference.limits, token)
    if inference.access_log is None and inference.spans is NO_SPANS:
        return guarded
    return Watch(guarded, inference.access_log, inference.spans)


class _Endpoints:
    """What is done at each address."""

    def __init__(self, inference: Inference) -> None:
        self._inference, self._repository = inference, inference.repository
        self._limits, self._bodies = inference.limits, inference.bodies
        self._readers = Readers()
        self._page_state = PageState(inference)
        self._metrics = -math.inf, b""

    def dispatching(self, is_ending: Callable[[], bool]) -> ASGIApp:
        """Return the application of all addresses."""
        others = CutOff(self._starlette(), is_ending)
        return InferAddress(others, self._inference, self._readers, is_ending)

    def _starlette(self) -> Starlette:
        model = "/v2/models/{model}"
        routes = [
            get("/", self.page),
            get("/page.json", self.page_state),
            get("/v2/models/stats", self.statistics),
            *both("/v2", self.server),
            get("/v2/health/live", self.live),
            get("/v2/health/ready", self.ready),
            *versioned(model, "", self.metadata),
            *versioned(model, "/ready", self.model_ready),
            *versioned(model, "/config", self.configuration),
            *versioned(model, "/stats", self.statistics),
            get("/metrics", self.metrics),
            *versioned(model, "/generate", self.generate, "POST"),
            *versioned(model, "/generate_stream", self.generate_stream, "POST"),
            post("/v2/repository/index", self.index),
            post("/v2/repository/models/{model}/load", self.load),
            post("/v2/repository/models/{model}/unload", self.unload),
        ]
        if self._inference.regions is not None:
            routes += region_routes(self._inference.regions, self._read_fields)
        made = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
        made.router.redirect_slashes = False  # it would send clients to whatever Host names
        return made

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page(), headers=_PAGE_HEADERS)

    async def page_state(self, request: Request) -> Response:
        return Response(await self._page_state.document(), media_type="application/json")

    async def server(self, request: Request) -> Response:
        return JSONResponse(
            {
                "name": "aioinfer",
                "version": __version__,
                "extensions": self._inference.extensions,
            }
        )

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        return Response(status_code=200 if self._repository.is_ready else 503)

    async def metadata(self, request: Request) -> Response:
        model, version = _place(request)
        served = self._repository.find(model, version)
        versions = self._repository.versions(model) or {}
        return JSONResponse(
            model_metadata(model, sorted(versions, key=int), served.inputs, served.outputs)
        )

    async def configuration(self, request: Request) -> Response:
        served = self._repository.find(*_place(request))
        is_decoupled = served.generation is not None
        return JSONResponse(
            model_configuration(
                served.model, served.inputs, served.outputs, is_decoupled=is_decoupled
            )
        )

    async def model_ready(self, request: Request) -> Response:
        self._repository.find(*_place(request))
        return Response()

    async def statistics(self, request: Request) -> Response:
        model = request.path_params.get("model", "")
        version = request.path_params.get("version", "")
        return JSONResponse(
            {
                "model_stats": [
                    statistics_entry(
                        served.model,
                        served.version,
                        served.last_inference_ms,
                        counts_of(served.network.statistics()),
                    )
                    for served in self._repository.selected(model, version)
                ]
            }
        )

    async def metrics(self, request: Request) -> Response:
        now_s = time.monotonic()
        made_s, text = self._metrics
        if now_s - made_s > _METRICS_FRESH_S:
            text = metrics_text(self._repository)
            self._metrics = now_s, text
        return Response(text, media_type=CONTENT_TYPE)

    async def generate(self, request: Request) -> Response:
        with self._bodies.share() as share:
            call = await self._read_generate(request, share)
            body = await while_connected(self._generated(request, call), request.receive)
        return Response(body, media_type="application/json")

    async def _generated(self, request: Request, call: InferCall) -> bytes:
        told: list[Mapping[str, object]] = []
        names: list[str] = []
        size = 0
        async with aclosing(self._inference.stream(*_place(request), call)) as answers:
            async for answer in answers:
                told.append(await _written(answer, partial(generate_document, answer)))
                names = [requested.name for requested, _ in answer.outputs]
                size += answer.size_bytes
        return await written(size, partial(joined_documents, told, names))

    async def generate_stream(self, request: Request) -> Response:
        """Answer with one event for each step, the first of which must succeed."""
        with ExitStack() as held:
            call = await self._read_generate(request, held.enter_context(self._bodies.share()))
            answers = self._inference.stream(*_place(request), call)
            try:
                first = await while_connected(anext(answers), request.receive)
                event = await _written(first, partial(_event, first))
            except BaseException:
                await answers.aclose()
                raise
            return _EventStream(event, answers, held.pop_all())

    async def _read_generate(self, request: Request, share: BodyShare) -> InferCall:
        inputs = self._repository.find(*_place(request)).inputs
        body = await self._body(request, share)
        read = partial(read_generate_request, body, inputs, self._limits)
        return await self._readers.read(len(body), read)

    async def _body(self, request: Request, share: BodyShare) -> memoryview:
        headers = BodyHeaders.of(request.scope["headers"])
        return await read_body(headers, request.receive, self._limits, share)

    async def _read_fields(self, request: Request) -> Fields:
        """Read the body of a call about the server itself, which may be empty."""
        with self._bodies.share() as share:
            body = await self._body(request, share)
            read = partial(read_json, body, self._limits)
            return Fields(await self._readers.read(len(body), read) if body else {})

    async def index(self, request: Request) -> Response:
        fields = await self._read_fields(request)
        only_ready = fields.flag("ready", default=False)
        return JSONResponse(
            [
                {
                    "name": state.model,
                    "version": state.version,
                    "state": state.state,
                    "reason": state.reason,
                }
                for state in self._repository.states()
                if state.state == "READY" or not only_ready
            ]
        )

    async def load(self, request: Request) -> Response:
        await self._managed(request, self._repository.load)
        return Response()

    async def unload(self, request: Request) -> Response:
        await self._managed(request, self._repository.unload)
        return Response()

    async def _managed(self, request: Request, change: Callable[[str], Awaitable[None]]) -> None:
        fields = await self._read_fields(request)
        for name in ("config", "files"):
            if fields.inner("parameters").has(name):
                raise RefusedError("is not taken", field=f"parameters.{name}")
        await change(request.path_params["model"])


class _EventStream(StreamingResponse):
    """Server-sent events of the answers to one request; ends with its client."""

    def __init__(self, first: bytes, answers: AsyncGenerator[Answer, None], held: ExitStack):
        super().__init__(self._events(first, answers), media_type="text/event-stream")
        self._answers, self._held = answers, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await self._answers.aclose()
            self._held.close()

    async def _events(
        self, first: bytes, answers: AsyncGenerator[Answer, None]
    ) -> AsyncIterator[bytes]:
        yield first
        try:
            async for answer in answers:
                yield await _written(answer, partial(_event, answer))
        except Exception as error:
            yield server_sent({"error": str(refusal_of(error))})


def _event(answer: Answer) -> bytes:
    return server_sent(generate_document(answer))


async def _written(answer: Answer, write: Callable[[], T]) -> T:
    return await written(answer.size_bytes, write)


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["model"], request.path_params.get("version", "")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = unknown_address(request.method, request.url.path)
    return Response(body, error.status_code, media_type=JSON_TYPE)
