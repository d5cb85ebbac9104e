"""No starvation: whatever comes or goes, how long a run waits at most is known when it comes."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from aioinfer.runtime.runs.admission import MOST_OVERTAKINGS, AdmissionQueue, ticket_of

arrivals = st.tuples(st.just("come"), st.integers(-3, 3))
steps = st.lists(
    st.one_of(
        arrivals,
        arrivals,
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 9)),
    ),
    max_size=300,
)


@given(steps)
def test_who_waits_has_a_slot_after_a_number_of_slots_that_is_known_when_it_comes(
    script: list[tuple[str, int]],
) -> None:
    queue: AdmissionQueue[str, int] = AdmissionQueue()
    due: dict[int, int] = {}
    """By when each waiting run must have its slot, counted in slots; in order of arrival."""
    granted = 0

    def release() -> None:
        nonlocal granted
        run = queue.release("slot")
        granted += 1
        if run is None:
            assert not due
            assert queue.idle.pop() == "slot"
            return
        event("out of turn" if run == next(iter(due)) and len(due) > 1 else "in turn")
        assert granted <= due.pop(run)
        assert all(granted < bound for bound in due.values())

    for number, (step, argument) in enumerate(script):
        if step == "come":
            due[number] = granted + (MOST_OVERTAKINGS + 1) * (len(due) + 1)
            assert queue.offer(ticket_of(argument), number) is None
        elif step == "release":
            release()
        elif argument < len(due):
            dropped = list(due)[argument]
            assert queue.drop(dropped)
            del due[dropped]
    while due:
        release()


@given(st.integers(1, 40), st.integers(0, 40))
def test_an_endless_stream_of_urgent_runs_holds_nobody_up_for_ever(
    patient_count: int, urgent_ahead: int
) -> None:
    queue: AdmissionQueue[str, tuple[str, int]] = AdmissionQueue()
    for number in range(urgent_ahead):
        queue.offer(ticket_of(1), ("urgent", -number))
    for number in range(patient_count):
        queue.offer(ticket_of(0), ("patient", number))
    served: list[int] = []
    for number in range((MOST_OVERTAKINGS + 1) * (patient_count + urgent_ahead)):
        queue.offer(ticket_of(1), ("late", number))
        run = queue.release("slot")
        assert run is not None
        if run[0] == "patient":
            served.append(run[1])
    assert served == list(range(patient_count))
