"""Where the time of a run went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioinfer.runtime.tracing.timeline.critical_path import PathPart, critical_path, slowest_of
from aioinfer.runtime.tracing.timeline.runs import runs_of
from unit.runtime.tracing.timeline.spans import diamond, span


def test_the_path_of_one_span_is_its_wait_and_its_work() -> None:
    spans = [span(times=(5, 7, 20), arrived_ns=1)]
    (run,) = runs_of(spans)
    assert critical_path(run, spans) == (PathPart(0, slot_ns=4, queue_ns=2, service_ns=13),)


def test_the_path_goes_through_the_branch_that_was_waited_for() -> None:
    spans = diamond()
    (run,) = runs_of(spans)
    parts = critical_path(run, spans)
    assert [spans[part.span].stage for part in parts] == ["split", "right", "join"]
    assert parts == (
        PathPart(0, slot_ns=10, queue_ns=10, service_ns=30),
        PathPart(2, slot_ns=3, queue_ns=17, service_ns=70),
        PathPart(3, slot_ns=5, queue_ns=5, service_ns=50),
    )


def test_a_branch_that_ended_last_is_the_path_even_if_nobody_waited_for_it() -> None:
    spans = [span("a", (0, 0, 10)), span("side", (10, 10, 90)), span("main", (10, 10, 20))]
    (run,) = runs_of(spans)
    assert [spans[part.span].stage for part in critical_path(run, spans)] == ["a", "side"]


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 20)),
        min_size=1,
        max_size=12,
    )
)
def test_the_parts_add_up_to_the_latency(times: list[tuple[int, int, int]]) -> None:
    spans = [
        span(str(number), (queued, queued + waited, queued + waited + took), arrived_ns=0)
        for number, (queued, waited, took) in enumerate(times)
    ]
    (run,) = runs_of(spans)
    parts = critical_path(run, spans)
    assert sum(part.slot_ns + part.queue_ns + part.service_ns for part in parts) == run.latency_ns
    assert all(min(part.slot_ns, part.queue_ns, part.service_ns) >= 0 for part in parts)


def test_the_slowest_run_is_a_complete_one_if_there_is_one() -> None:
    spans = [
        span(times=(0, 0, 1000), age=1, arrived_ns=1),
        span(times=(50, 50, 90), age=2, arrived_ns=50),
        span(times=(60, 60, 100), age=3, arrived_ns=60),
    ]
    slowest = slowest_of(runs_of(spans, forgot_until_ns=20))
    assert slowest is not None
    assert slowest.run_id == 2, "the earlier one of two that took 40 ns"
    incomplete = slowest_of(runs_of(spans, forgot_until_ns=5000))
    assert incomplete is not None
    assert incomplete.run_id == 1


def test_without_runs_none_is_slowest() -> None:
    assert slowest_of([]) is None
