"""What is recorded of every request over HTTP when it has been answered: its line and its span."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..access_log import AccessLog
from ..spans import Spans
from .answers import WHOLE_ANSWER
from .bodies import BODY_SINK

__all__ = ["Watch", "model_of"]

_TRACE_HEADERS = (b"traceparent", b"tracestate")
_CALLS = ("infer", "generate", "generate_stream", "stats", "index", "load", "unload", "v2")
_PROBES = ("/v2/health/live", "/v2/health/ready", "/metrics")


class Watch:
    """Logs each request, and records a span of each that is no probe."""

    def __init__(self, app: ASGIApp, log: AccessLog | None, spans: Spans) -> None:
        self._app, self._log, self._spans = app, log, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http"
        headers = trace_headers(scope) if is_request else {}
        if not is_request or (self._log is None and not self._spans.is_wanted(headers)):
            await self._app(scope, receive, send)
            return
        for name in (WHOLE_ANSWER, BODY_SINK):  # which pass by what counts here
            scope.get("extensions", {}).pop(name, None)
        counts = _Counts(send, receive)
        log, path = self._log, scope["path"]
        begun_s = log.clock() if log is not None else 0.0
        model, version = model_of(path)
        trace_id = ""
        try:
            if path.endswith(_PROBES):
                await self._app(scope, counts.receive, counts.send)
                return
            last = path.rpartition("/")[2]
            name = f"{scope['method']} {last}" if last in _CALLS else scope["method"]
            with self._spans.around(name, headers) as span:
                trace_id = span.trace_id
                if model:
                    span.tell(model=model, version=version)
                try:
                    await self._app(scope, counts.receive, counts.send)
                finally:
                    span.tell(status=counts.status)
                    if counts.status >= 500 or not counts.status:
                        span.fail(f"status {counts.status}")
        finally:
            if log is not None:
                client = scope.get("client") or ("", 0)
                log.tell(
                    begun_s,
                    wire="http",
                    client=str(client[0]),
                    call=f"{scope['method']} {path}",
                    status=counts.status,
                    model=model,
                    version=version,
                    received_bytes=counts.received_bytes,
                    sent_bytes=counts.sent_bytes,
                    trace_id=trace_id,
                )


class _Counts:
    """Bytes and status of one request; 0 is the status of one without an answer."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send, self._receive = send, receive
        self.status = self.received_bytes = self.sent_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.sent_bytes += len(message.get("body", b""))
        await self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        self.received_bytes += len(message.get("body", b""))
        return message


def trace_headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers that name a trace."""
    return {
        name.decode(): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _TRACE_HEADERS
    }


def model_of(path: str) -> tuple[str, str]:
    """Return the model and version that an address names; "" for those that it does not."""
    parts = path.partition("/v2/models/")[2].split("/")
    version = parts[2] if len(parts) > 2 and parts[1] == "versions" else ""
    return parts[0], version
