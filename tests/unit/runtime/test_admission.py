"""Who gets the next slot."""

from __future__ import annotations

from aioinfer.runtime.admission import AdmissionQueue, Ticket


class Run:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def test_runs_get_slots_until_none_is_idle() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue(["s1", "s2"])
    assert {queue.offer(Ticket.of(0), Run("a")), queue.offer(Ticket.of(0), Run("b"))} == {
        "s1",
        "s2",
    }
    assert queue.offer(Ticket.of(0), Run("c")) is None
    assert queue.waiting_count == 1


def test_a_freed_slot_goes_by_priority_then_age() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    runs = {name: Run(name) for name in ("old", "young", "urgent")}
    for name, priority in (("old", 0), ("young", 0), ("urgent", 5)):
        queue.offer(Ticket.of(priority), runs[name])
    order = [queue.release("slot") for _ in range(3)]
    assert order == [runs["urgent"], runs["old"], runs["young"]]
    assert queue.release("slot") is None
    assert queue.offer(Ticket.of(0), Run("next")) == "slot"


def test_a_run_inside_another_keeps_the_age_of_the_outer_one() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    outer_first, outer_second = Ticket.of(0), Ticket.of(0)
    second, first = Run("second"), Run("first")
    queue.offer(outer_second, second)
    queue.offer(outer_first, first)
    assert queue.release("slot") is first


def test_a_dropped_run_never_gets_a_slot() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    dropped, kept = Run("dropped"), Run("kept")
    queue.offer(Ticket.of(9), dropped)
    queue.offer(Ticket.of(0), kept)
    assert queue.drop(dropped)
    assert not queue.drop(dropped), "twice is fine, and says so"
    assert queue.waiting_count == 1
    assert queue.release("slot") is kept
    assert not queue.drop(kept), "it has a slot"


def test_a_thousand_dropped_runs_leave_nothing_behind() -> None:
    queue: AdmissionQueue[str, Run] = AdmissionQueue()
    runs = [Run(str(index)) for index in range(1000)]
    for run in runs:
        queue.offer(Ticket.of(0), run)
    for run in runs:
        assert queue.drop(run)
    assert len(queue._heap) <= 8
    assert queue.release("slot") is None
