"""The nodes of a trace as spans that are drawn in rows of their own, below their stages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..recorder import NO_BYTES, NodeSpan, Span

if TYPE_CHECKING:
    from .span_sequence import SpanSequence

__all__ = ["node_spans"]


def node_spans(trace: SpanSequence) -> list[Span]:
    """Make a span of each node, on the lane of the stage in which it ran, in order of start.

    Left out are those of runs whose spans the ring has dropped.
    """
    stages: dict[int, list[Span]] = {}
    for span in trace:
        stages.setdefault(span.age, []).append(span)
    made = []
    for node in trace.nodes:
        if node.age in stages:
            stage = _stage_of(node, stages[node.age])
            made.append(
                stage._replace(
                    stage=f"{node.op} {node.name}",
                    executor="nodes",
                    lane=f"{stage.lane} nodes",
                    queued_ns=node.started_ns,
                    started_ns=node.started_ns,
                    ended_ns=node.ended_ns,
                    copied_bytes=NO_BYTES,
                )
            )
    return made


def _stage_of(node: NodeSpan, stages: Sequence[Span]) -> Span:
    """Find the stage that shares most time with a node; of equals the shortest.

    A device's own clock may put a node a little beyond the ends of its stage.
    """

    def fit(span: Span) -> tuple[int, int]:
        shared_ns = min(span.ended_ns, node.ended_ns) - max(span.started_ns, node.started_ns)
        return shared_ns, span.started_ns - span.ended_ns

    return max(stages, key=fit)
