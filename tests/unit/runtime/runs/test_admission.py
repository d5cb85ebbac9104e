"""Who gets the next slot."""

from __future__ import annotations

import itertools

import pytest

from aioinfer.runtime.runs import admission
from aioinfer.runtime.runs.admission import MOST_OVERTAKINGS, AdmissionQueue, Ticket, ticket_of


class Run:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def test_runs_get_slots_until_none_is_idle() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue(["s1", "s2"])
    assert {queue.offer(ticket_of(0), Run("a")), queue.offer(ticket_of(0), Run("b"))} == {
        "s1",
        "s2",
    }
    assert queue.offer(ticket_of(0), Run("c")) is None
    assert queue.waiting_count == 1


def test_a_freed_slot_goes_by_priority_then_age() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    runs = {name: Run(name) for name in ("old", "young", "urgent")}
    for name, priority in (("old", 0), ("young", 0), ("urgent", 5)):
        queue.offer(ticket_of(priority), runs[name])
    order = [queue.release("slot") for _ in range(3)]
    assert order == [runs["urgent"], runs["old"], runs["young"]]
    assert queue.release("slot") is None
    assert queue.offer(ticket_of(0), Run("next")) == "slot"


def test_a_run_inside_another_keeps_the_age_of_the_outer_one() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    outer_first, outer_second = ticket_of(0), ticket_of(0)
    second, first = Run("second"), Run("first")
    queue.offer(outer_second, second)
    queue.offer(outer_first, first)
    assert queue.release("slot") is first


def test_a_dropped_run_never_gets_a_slot() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    dropped, kept = Run("dropped"), Run("kept")
    queue.offer(ticket_of(9), dropped)
    queue.offer(ticket_of(0), kept)
    assert queue.drop(dropped)
    assert not queue.drop(dropped), "twice is fine, and says so"
    assert queue.waiting_count == 1
    assert queue.release("slot") is kept
    assert not queue.drop(kept), "it has a slot"


def test_a_thousand_dropped_runs_leave_nothing_behind() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    runs = [Run(str(index)) for index in range(1000)]
    for run in runs:
        queue.offer(ticket_of(0), run)
    for run in runs:
        assert queue.drop(run)
    assert len(queue._heap) <= 8
    assert queue.release("slot") is None


def test_low_priorities_get_every_eighth_slot_under_a_stream_of_high_ones() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    for name in ("low 1", "low 2"):
        queue.offer(ticket_of(0), Run(name))
    order = []
    for _ in range(3 * (MOST_OVERTAKINGS + 1)):
        queue.offer(ticket_of(9), Run("high"))
        order.append(queue.release("slot").name)
    round_ = ["high"] * MOST_OVERTAKINGS
    # The third round's slot goes to a high one that has waited since the first.
    assert order == [*round_, "low 1", *round_, "low 2", *round_, "high"]


def test_runs_of_one_priority_are_never_taken_out_of_turn() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    names = [str(index) for index in range(50)]
    for name in names:
        queue.offer(ticket_of(3), Run(name))
    assert [queue.release("slot").name for _ in names] == names


def test_nobody_is_taken_out_of_turn_for_a_run_that_was_dropped() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    patient = Run("patient")
    queue.offer(ticket_of(0), patient)
    for _ in range(MOST_OVERTAKINGS):
        queue.offer(ticket_of(1), Run("urgent"))
        queue.release("slot")
    assert queue.drop(patient)
    for name, priority in (("old", 0), ("urgent", 1)):
        queue.offer(ticket_of(priority), Run(name))
    assert queue.release("slot").name == "urgent", "whom it was for has gone"


def test_a_queue_is_full_when_as_many_wait_as_may() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue(["slot"], most_waiting=2)
    waiting = Run("waiting")
    seen = [queue.is_full]
    for run in (Run("running"), waiting, Run("waiting too"), Run("one too many")):
        queue.offer(ticket_of(0), run)
        seen.append(queue.is_full)
    assert seen == [False, False, False, True, True]
    queue.drop(waiting)
    assert queue.is_full, "the one too many counts as well"
    queue.release("slot")
    assert not queue.is_full


def test_an_unbounded_queue_is_never_full() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    for _ in range(100):
        queue.offer(ticket_of(0), Run("run"))
        assert not queue.is_full


class SlowQueue:
    """The rule, word by word, on a list in order of arrival."""

    def __init__(self, limit: int) -> None:
        self.limit, self.overtakings = limit, 0
        self.waiting: list[tuple[Ticket, str]] = []

    def release(self) -> str | None:
        if not self.waiting:
            return None
        turn = self.waiting[0] if self.overtakings >= self.limit else min(self.waiting)
        self.overtakings = 0 if turn is self.waiting[0] else self.overtakings + 1
        self.waiting.remove(turn)
        return turn[1]

    def drop_last(self) -> None:
        self.waiting.pop()
        self.overtakings = self.overtakings if self.waiting else 0


STEPS = ("low", "middle", "high", "release", "drop")


@pytest.mark.parametrize("limit", [1, 2])
def test_every_short_script_goes_as_the_rule_says(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(admission, "MOST_OVERTAKINGS", limit)
    for script in itertools.product(STEPS, repeat=6):
        queue: AdmissionQueue[str, str] = AdmissionQueue()
        slow = SlowQueue(limit)
        for number, step in enumerate((*script, *["release"] * 6)):
            if step == "release":
                turn = queue.release("slot")
                assert turn == slow.release(), script
                if turn is None:
                    assert queue.idle.pop() == "slot"
            elif step == "drop":
                if slow.waiting:
                    assert queue.drop(slow.waiting[-1][1])
                    slow.drop_last()
            else:
                name, ticket = f"{step} {number}", ticket_of(STEPS.index(step))
                assert queue.offer(ticket, name) is None
                slow.waiting.append((ticket, name))
            assert queue.waiting_count == len(slow.waiting)
