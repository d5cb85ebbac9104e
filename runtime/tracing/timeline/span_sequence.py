"""The spans of a network as a sequence, and the runs that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, overload

from ....executors.cached_property import cached_property
from ....executors.late_imports import late_imports
from ..recorder import NodeSpan, Span

if TYPE_CHECKING:
    from .critical_path import PathPart
    from .runs import TracedRun

__all__ = ["SpanSequence"]


class SpanSequence(Sequence[Span]):
    """Spans of one network and its sub-networks, in the order in which they started; immutable.

    Runs that came before ``forgot_until_ns`` may lack spans, because the ring they are kept in is
    bounded; 0 says that all spans are there. ``nodes`` are those of the latest runs, in the order
    in which they ran, where PERF_COUNT is on.
    """

    def __init__(
        self,
        network: str,
        device: str,
        spans: Iterable[Span],
        forgot_until_ns: int = 0,
        nodes: Iterable[NodeSpan] = (),
    ) -> None:
        self.network, self.device = network, device
        self.forgot_until_ns = forgot_until_ns
        self._spans = tuple(sorted(spans, key=lambda span: span.started_ns))
        self.nodes = tuple(sorted(nodes, key=lambda node: node.started_ns))

    @classmethod
    def merged(cls, network: str, device: str, traces: Iterable[SpanSequence]) -> Self:
        """Join traces into one: of a network's parts, or of several networks."""
        parts = list(traces)
        forgot_until_ns = max((part.forgot_until_ns for part in parts), default=0)
        spans = (span for part in parts for span in part)
        nodes = (node for part in parts for node in part.nodes)
        return cls(network, device, spans, forgot_until_ns, nodes)

    def labelled(self, copy: int = 1) -> Self:
        """Name the network in each span, for a trace of several; of copy 2 on as ``name#2``."""
        label = self.network if copy == 1 else f"{self.network}#{copy}"
        spans = [
            span._replace(network=label, stage=f"{label}: {span.stage}") for span in self._spans
        ]
        return type(self)(label, self.device, spans, self.forgot_until_ns, self.nodes)

    def since(self, start_ns: int) -> Self:
        """Return the spans of the runs that came at this ``time.perf_counter_ns`` or later."""
        wanted = [run for run in self.runs if run.arrived_ns >= start_ns]
        spans = [self._spans[index] for run in wanted for index in run.spans]
        ages = {span.age for span in spans}
        nodes = [node for node in self.nodes if node.age in ages]
        return type(self)(self.network, self.device, spans, self.forgot_until_ns, nodes)

    @cached_property
    def runs(self) -> tuple[TracedRun, ...]:
        """The runs that the spans belong to, in the order in which they came."""
        with late_imports:
            from .runs import runs_of

        return runs_of(self._spans, self.forgot_until_ns)

    def slowest_run(self) -> TracedRun | None:
        """Return the complete run that took longest; of what is incomplete if there is no other."""
        with late_imports:
            from .critical_path import slowest_of

        return slowest_of(self.runs)

    def critical_path(self, run: TracedRun) -> tuple[PathPart, ...]:
        """Return where a run's time went: waits and services that add up to it, first to last."""
        with late_imports:
            from .critical_path import critical_path

        return critical_path(run, self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...

    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        return self._spans[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)
