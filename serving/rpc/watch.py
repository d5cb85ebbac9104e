"""What is recorded of every gRPC call when it has been answered: its line and its span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ..access_log import AccessLog
from ..spans import Spans

__all__ = ["CallFacts", "RpcWatch"]

_TRACE_KEYS = ("traceparent", "tracestate")
_PROBES = ("ServerLive", "ServerReady")
_SERVERS_FAULT = ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "")


@dataclass
class CallFacts:
    """What is known of a call by its end. ``code`` "": it was cancelled."""

    model: str = ""
    version: str = ""
    code: str = ""
    received_bytes: int = 0
    sent_bytes: int = 0


class RpcWatch:
    """Logs each call, and records a span of each that is no probe."""

    def __init__(self, log: AccessLog | None, spans: Spans) -> None:
        self._log, self._spans = log, spans

    def around(self, call: str, context: Any) -> AbstractContextManager[CallFacts]:
        """Return a context whose value are the facts of a call, which its handler fills."""
        headers: dict[str, str] = {}
        if call not in _PROBES:
            for key, value in context.invocation_metadata() or ():
                if key in _TRACE_KEYS:
                    headers[key] = str(value)
        if self._log is None and (call in _PROBES or not self._spans.is_wanted(headers)):
            return nullcontext(CallFacts())
        return self._recorded(call, context, headers)

    @contextmanager
    def _recorded(self, call: str, context: Any, headers: Mapping[str, str]) -> Iterator[CallFacts]:
        facts = CallFacts()
        begun_s = self._log.clock() if self._log is not None else 0.0
        trace_id = ""
        try:
            if call in _PROBES:
                yield facts
                return
            with self._spans.around(f"gRPC {call}", headers) as span:
                trace_id = span.trace_id
                try:
                    yield facts
                finally:
                    span.tell(model=facts.model, version=facts.version, code=facts.code)
                    if facts.code in _SERVERS_FAULT:
                        span.fail(facts.code or "cancelled")
        finally:
            self.tell(begun_s, call, context.peer(), facts, trace_id)

    def tell(
        self, begun_s: float, call: str, client: str, facts: CallFacts, trace_id: str = ""
    ) -> None:
        """Write the line of a call."""
        if self._log is not None:
            self._log.tell(
                begun_s,
                wire="grpc",
                client=client,
                call=call,
                code=facts.code or "CANCELLED",
                model=facts.model,
                version=facts.version,
                received_bytes=facts.received_bytes,
                sent_bytes=facts.sent_bytes,
                trace_id=trace_id,
            )
