"""What CPU's networks tell of themselves beyond the standard metrics."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.properties.properties import Metric
from .onednn.bindings import Engine, version_text
from .programs.lane_programs import LanePrograms

__all__ = ["network_metrics"]


def network_metrics(
    engine: Engine,
    plan_count: Callable[[], int],
    packed_bytes: Callable[[], int],
    programs: LanePrograms,
) -> list[Metric]:
    """List them; the numbers are asked for when a metric is."""
    return [
        Metric(
            "ONEDNN_VERSION",
            lambda _: version_text(engine.version),
            "The version of the oneDNN library that computes.",
        ),
        Metric("PLAN_COUNT", lambda _: plan_count(), "Shape signatures whose plans are kept."),
        Metric(
            "PACKED_WEIGHTS_BYTES",
            lambda _: packed_bytes(),
            "Memory of weights in oneDNN's layouts, and of those in 4 or 8 bits; plans share them.",
        ),
        Metric(
            "TEAM_SIZES",
            lambda _: programs.team_sizes,
            "Threads that each stream computes with now: fewer while others need the CPUs.",
        ),
        Metric("ARENA_BYTES", lambda _: programs.arena_bytes, "Memory of all streams."),
    ]
