"""Which spans are one run, and what each waited for."""

from __future__ import annotations

from aioinfer.runtime.tracing.recorder import Span
from aioinfer.runtime.tracing.timeline.runs import ARRIVAL, TracedRun, runs_of
from unit.runtime.tracing.timeline.spans import diamond, span


def waits(run: TracedRun, spans: list[Span]) -> dict[str, str | None]:
    return {
        spans[index].stage: None if before == ARRIVAL else spans[before].stage
        for index, before in zip(run.spans, run.before, strict=True)
    }


def test_no_spans_are_no_runs() -> None:
    assert runs_of([]) == ()


def test_one_span_is_a_run_that_waited_for_nothing() -> None:
    (run,) = runs_of([span(times=(5, 6, 9), age=3, run_id=7, arrived_ns=2)])
    assert run == TracedRun("7", 7, 2, 9, (0,), (ARRIVAL,), True)
    assert run.latency_ns == 7


def test_a_span_waited_for_the_one_that_ended_last_before_it_was_queued() -> None:
    spans = diamond()
    (run,) = runs_of(spans)
    assert waits(run, spans) == {"split": None, "left": "split", "right": "split", "join": "right"}
    assert (run.arrived_ns, run.ended_ns) == (100, 300)


def test_runs_of_one_request_are_told_apart_and_numbered_in_order_of_arrival() -> None:
    spans = [
        span(times=(30, 30, 40), age=9, run_id=4, arrived_ns=25),
        span(times=(0, 0, 10), age=5, run_id=4, arrived_ns=0),
        span(times=(10, 10, 20), age=6, run_id=8, arrived_ns=1),
    ]
    runs = runs_of(spans)
    assert [(run.label, run.spans) for run in runs] == [("4.1", (1,)), ("8", (2,)), ("4.2", (0,))]


def test_spans_of_one_run_need_not_stand_together() -> None:
    spans = [
        span("plan", (0, 0, 1), age=1),
        span("plan", (0, 0, 2), age=2),
        span("compute", (1, 1, 5), age=1),
        span("compute", (2, 5, 9), age=2),
    ]
    assert [run.spans for run in runs_of(spans)] == [(0, 2), (1, 3)]


def test_inline_runs_are_chains_in_which_one_stage_begins_when_the_other_ends() -> None:
    spans = [
        span("plan", (10, 11, 12), age=0, run_id=3),
        span("compute", (12, 12, 20), age=0, run_id=3),
        span("plan", (21, 22, 23), age=0, run_id=3),
        span("compute", (23, 23, 30), age=0, run_id=3),
    ]
    runs = runs_of(spans)
    assert [(run.label, run.spans) for run in runs] == [("3.1", (0, 1)), ("3.2", (2, 3))]
    assert [run.arrived_ns for run in runs] == [10, 21]
    assert waits(runs[1], spans) == {"plan": None, "compute": "plan"}


def test_spans_without_length_wait_for_each_other_in_a_line_and_not_in_a_circle() -> None:
    spans = [span(name, (5, 5, 5)) for name in "abc"]
    (run,) = runs_of(spans)
    assert run.before == (ARRIVAL, 0, 1)


def test_what_came_before_the_ring_forgot_may_be_incomplete() -> None:
    spans = [
        span(times=(12, 13, 14), age=1, arrived_ns=10),
        span(times=(40, 41, 42), age=2, arrived_ns=30),
    ]
    assert [run.is_complete for run in runs_of(spans, forgot_until_ns=20)] == [False, True]
