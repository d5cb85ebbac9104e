"""Spans of OpenTelemetry that continue the client's trace, where opentelemetry-api is installed.

The API alone records nothing: a service that wants its spans configures the SDK, as for its others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

__all__ = ["NO_SPANS", "RecordedSpans", "Span", "Spans", "installed_spans"]


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
    carry a client's trace on.
    """

    def __init__(
        self,
        trace: Any,
        extract: Any,
        tracer: Any,
        is_recorded: Callable[[], bool] = lambda: True,
    ) -> None:
        self._trace, self._extract, self._tracer = trace, extract, tracer
        self._is_recorded = is_recorded

    def around(self, name: str, headers: Mapping[str, str]) -> Any:
        if not headers and not self._is_recorded():
            return nullcontext(_NO_SPAN)
        return self._recorded(name, headers)

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
