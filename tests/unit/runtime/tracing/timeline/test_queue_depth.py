"""How many runs waited for a device at each moment."""

from __future__ import annotations

from aioinfer.runtime.tracing.recorder import Span
from aioinfer.runtime.tracing.timeline.queue_depth import Depth, queue_depths
from aioinfer.runtime.tracing.timeline.runs import runs_of
from unit.runtime.tracing.timeline.spans import diamond, span


def depths(spans: list[Span]) -> dict[str, list[Depth]]:
    return queue_depths(runs_of(spans), spans)


def test_a_run_is_without_a_slot_and_then_in_a_queue() -> None:
    assert depths([span(times=(30, 50, 60), arrived_ns=10)]) == {
        "A": [Depth(10, 1, 0), Depth(30, 0, 1), Depth(50, 0, 0)]
    }


def test_runs_that_wait_at_once_are_added_up() -> None:
    spans = [span(times=(10, 40, 50), age=age, arrived_ns=10) for age in (1, 2, 3)]
    assert depths(spans) == {"A": [Depth(10, 0, 3), Depth(40, 0, 0)]}


def test_who_comes_when_another_goes_changes_nothing() -> None:
    spans = [span(times=(10, 20, 21), age=1, arrived_ns=10)]
    spans += [span(times=(20, 30, 31), age=2, arrived_ns=20)]
    assert depths(spans) == {"A": [Depth(10, 0, 1), Depth(30, 0, 0)]}


def test_a_run_waits_for_the_device_of_its_next_stage() -> None:
    found = depths(diamond())
    assert found["B"] == [Depth(150, 1, 0), Depth(153, 0, 1), Depth(170, 0, 0)]
    assert [step[1:] for step in found["A"]][-1] == (0, 0)


def test_what_never_waited_has_no_steps() -> None:
    assert depths([span(times=(10, 10, 20), arrived_ns=10)]) == {"A": []}
    assert depths([]) == {}
