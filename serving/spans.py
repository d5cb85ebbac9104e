"""Spans of OpenTelemetry that continue the client's trace, where opentelemetry-api is installed.

The API alone records nothing: a service that wants its spans configures the SDK, as for its others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

__all__ = ["NO_SPANS", "RecordedSpans", "Span", "Spans", "installed_spans"]

_ASK_AGAIN_S = 1.0


class Span(Protocol):
    """What is recorded of one request while it is answered."""

    trace_id: str
    """32 hexadecimal digits; "" where nothing is recorded."""

    def tell(self, **facts: str | int | bool) -> None:
        """Set attributes, below ``aioinfer.``."""

    def fail(self, description: str) -> None:
        """Mark it as an error of the server."""


class Spans(Protocol):
    """Makes a span around each request."""

    def is_wanted(self, headers: Mapping[str, str]) -> bool:
        """Return whether ``around`` would make more of a request than NO_SPANS do."""

    def around(self, name: str, headers: Mapping[str, str]) -> Any:
        """Return a context whose value is a Span; it continues the trace that headers name."""


class _NoSpan:
    trace_id = ""

    def tell(self, **facts: str | int | bool) -> None:
        pass

    def fail(self, description: str) -> None:
        pass


_NO_SPAN = _NoSpan()


class _NoSpans:
    def is_wanted(self, headers: Mapping[str, str]) -> bool:
        return False

    def around(self, name: str, headers: Mapping[str, str]) -> Any:
        return nullcontext(_NO_SPAN)


NO_SPANS: Spans = _NoSpans()


class _RecordedSpan:
    def __init__(self, span: Any, error: Any) -> None:
        self._span, self._error = span, error
        context = span.get_span_context()
        self.trace_id = f"{context.trace_id:032x}" if context.is_valid else ""

    def tell(self, **facts: str | int | bool) -> None:
        for name, fact in facts.items():
            self._span.set_attribute(f"aioinfer.{name}", fact)

    def fail(self, description: str) -> None:
        self._span.set_status(self._error, description)


class RecordedSpans:
    """Spans of a tracer of OpenTelemetry; ``trace`` is its module, ``extract`` reads headers.

    ``is_recorded`` tells whether anything records them; until then there are only those that
    carry a client's trace on. It is asked once a second.
    """

    def __init__(
        self,
        trace: Any,
        extract: Any,
        tracer: Any,
        is_recorded: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trace, self._extract, self._tracer = trace, extract, tracer
        self._ask_recorded, self._clock = is_recorded, clock
        self._is_recorded, self._asked_s = False, -math.inf

    def is_wanted(self, headers: Mapping[str, str]) -> bool:
        if headers or self._is_recorded:
            return True
        now_s = self._clock()
        if now_s - self._asked_s >= _ASK_AGAIN_S:
            self._is_recorded, self._asked_s = self._ask_recorded(), now_s
        return self._is_recorded

    def around(self, name: str, headers: Mapping[str, str]) -> Any:
        return self._recorded(name, headers) if self.is_wanted(headers) else nullcontext(_NO_SPAN)

    @contextmanager
    def _recorded(self, name: str, headers: Mapping[str, str]) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=self._extract(headers),
            kind=self._trace.SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield _RecordedSpan(span, self._trace.StatusCode.ERROR)


def installed_spans() -> Spans:
    """Return what makes spans; NO_SPANS where opentelemetry-api is not installed."""
    try:
        from opentelemetry import trace
        from opentelemetry.propagate import extract
    except ImportError:
        return NO_SPANS

    def is_recorded() -> bool:
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    return RecordedSpans(trace, extract, trace.get_tracer("aioinfer.serving"), is_recorded)
