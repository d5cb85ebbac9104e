"""Spans of invented runs."""

from __future__ import annotations

from aioinfer.runtime.tracing.recorder import Span


def span(
    stage: str = "compute",
    times: tuple[int, int, int] = (0, 0, 1),
    *,
    age: int = 1,
    run_id: int | None = None,
    lane: str = "A.0",
    executor: str = "A",
    device: str = "A",
    arrived_ns: int = 0,
    subgraph: str = "",
) -> Span:
    """Make a span; ``times`` are queued, started and ended."""
    request = age if run_id is None else run_id
    return Span(request, stage, executor, lane, *times, subgraph, device, age, arrived_ns)


def diamond(age: int = 1, begin_ns: int = 100) -> list[Span]:
    """Make a run over two devices: split, then left and right side by side, then join.

    Right takes longer, so join waits for it.
    """

    def at(*times: int) -> tuple[int, int, int]:
        queued, started, ended = (begin_ns + time for time in times)
        return queued, started, ended

    def on_b(stage: str, *times: int) -> Span:
        return span(
            stage,
            at(*times),
            age=age,
            device="B",
            executor="B",
            lane="B.0",
            arrived_ns=begin_ns,
        )

    return [
        span("split", at(10, 20, 50), age=age, arrived_ns=begin_ns),
        span("left", at(52, 60, 80), age=age, arrived_ns=begin_ns),
        on_b("right", 53, 70, 140),
        span("join", at(145, 150, 200), age=age, arrived_ns=begin_ns),
    ]
