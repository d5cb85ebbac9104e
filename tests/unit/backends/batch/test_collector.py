"""Which requests go together: a pure decision, tried by hand and at random."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.backends.batch.collector import Collector, Pace, begin_by
from aioinfer.runtime.runs.admission import MOST_OVERTAKINGS, Ticket

ONE_STREAM = Pace(1, 2)


@dataclass(eq=False)
class Waiting:
    ticket: Ticket
    row_count: int = 1
    key: Hashable = "alike"
    begin_by_s: float = 0.0
    deadline_s: float = inf


def collector(*members: Waiting, most_rows: int = 4, pace: Pace = ONE_STREAM) -> Collector[Waiting]:
    made: Collector[Waiting] = Collector(most_rows, pace)
    for member in members:
        made.add(member)
    return made


def tickets(group: list[Waiting]) -> list[Ticket]:
    return [member.ticket for member in group]


def test_the_first_by_ticket_go_together_as_far_as_they_fit() -> None:
    sizes = {(0, 1): 2, (-1, 2): 1, (0, 3): 2, (0, 4): 1, (0, 5): 1}
    made = collector(*[Waiting(ticket, rows) for ticket, rows in sizes.items()])
    assert tickets(made.take_group()) == [(-1, 2), (0, 1), (0, 4)]
    assert tickets(made.take_group()) == [(0, 3), (0, 5)]
    assert made.row_count == made.waiting_count == 0


def test_only_what_is_alike_goes_together() -> None:
    made = collector(
        Waiting((0, 1), key="a"),
        Waiting((0, 2), key="b"),
        Waiting((0, 3), key=None),
        Waiting((0, 4), key="a"),
        Waiting((0, 5), key=None),
    )
    groups = [tickets(made.take_group()) for _ in range(4)]
    assert groups == [[(0, 1), (0, 4)], [(0, 2)], [(0, 3)], [(0, 5)]]


def test_a_member_with_more_rows_than_a_run_goes_alone() -> None:
    made = collector(Waiting((0, 1), 9), Waiting((0, 2)))
    assert tickets(made.take_group()) == [(0, 1)]


def test_what_was_dropped_is_in_no_group() -> None:
    stays, goes = Waiting((0, 1)), Waiting((0, 2))
    made = collector(stays, goes)
    assert made.drop(goes)
    assert not made.drop(goes)
    assert made.take_group() == [stays]


@pytest.mark.parametrize(
    ("rows", "runs", "due_s"),
    [(0, 0, None), (1, 0, 0.0), (1, 1, None), (3, 1, None), (4, 1, 0.0), (4, 2, None)],
)
def test_a_run_that_is_not_full_waits_until_the_device_is_idle(
    rows: int, runs: int, due_s: float | None
) -> None:
    made = collector(*[Waiting((0, age)) for age in range(rows)])
    assert made.due_at_s(runs) == due_s


def test_with_a_timeout_a_run_that_is_not_full_waits_for_more() -> None:
    pace = Pace(1, 2, is_timed=True)
    made = collector(Waiting((0, 1), begin_by_s=7.5), Waiting((0, 2), begin_by_s=7.7), pace=pace)
    assert made.due_at_s(0) == 7.5
    assert made.due_at_s(1) is None
    made.add(Waiting((0, 3), 2, begin_by_s=7.8))
    assert made.due_at_s(0) == 0.0


def test_whoever_has_to_begin_first_says_when_and_no_more_once_it_has_left() -> None:
    pace = Pace(1, 2, is_timed=True)
    hurried = Waiting((0, 2), begin_by_s=7.1)
    made = collector(Waiting((0, 1), begin_by_s=7.5), hurried, pace=pace)
    assert made.due_at_s(0) == 7.1
    made.drop(hurried)
    assert made.due_at_s(0) == 7.5
    made.add(hurried)
    assert made.due_at_s(0) == 7.1


@pytest.mark.parametrize(
    ("deadline_s", "service_s", "begin_by_s"),
    [
        (inf, 0.0, 7.5),
        (inf, 0.1, 7.5),
        (20.0, 0.1, 7.5),
        (20.0, 0.0, 7.5),
        (7.6, 0.1, 7.4),
        (7.6, 0.0, 7.3),
        (7.1, 0.1, 7.0),
        (6.0, 0.1, 7.0),
    ],
)
def test_a_deadline_leaves_the_run_its_time(
    deadline_s: float, service_s: float, begin_by_s: float
) -> None:
    assert begin_by(7.0, 0.5, deadline_s, service_s) == pytest.approx(begin_by_s)


def test_of_one_priority_the_nearer_deadline_goes_first() -> None:
    members = [
        Waiting((0, 1)),
        Waiting((0, 2), deadline_s=9.0),
        Waiting((0, 3), deadline_s=8.0),
        Waiting((-1, 4)),
    ]
    made = collector(*members, most_rows=2)
    assert tickets(made.take_group()) == [(-1, 4), (0, 3)]
    assert tickets(made.take_group()) == [(0, 2), (0, 1)]


def test_a_run_is_full_only_with_rows_that_go_together() -> None:
    made = collector(*[Waiting((0, age), 2, key) for age, key in enumerate("abc")])
    assert made.due_at_s(1) is None
    assert made.add(Waiting((0, 4), 2, "b"))
    assert made.due_at_s(1) == 0.0


def test_a_member_that_has_left_may_come_again_with_the_same_ticket() -> None:
    again, other = Waiting((0, 1)), Waiting((0, 1))
    made = collector(again, other, pace=Pace(1, 2, is_timed=True))
    made.drop(again)
    made.add(again)
    assert made.take_group() == [other, again]
    assert made.waiting_count == made.row_count == 0


def test_what_has_left_is_not_kept() -> None:
    first = Waiting((0, 0))
    made = collector(first, pace=Pace(1, 2, is_timed=True))
    for age in range(1, 1000):
        member = Waiting((0, age))
        made.add(member)
        made.drop(member)
    assert len(made._times) + sum(len(line.entries) for line in made._lines.values()) < 40
    assert made.take_group() == [first]
    assert not made._lines


def test_what_does_not_fit_is_passed_a_bounded_number_of_times_and_keeps_its_place() -> None:
    sizes = [1, *[4] * 6, 1]
    made = collector(*[Waiting((0, age), rows) for age, rows in enumerate(sizes)])
    assert tickets(made.take_group()) == [(0, 0)]
    assert tickets(made.take_group()) == [(0, 1)]
    assert made.waiting_count == 6


def test_nobody_is_left_behind_for_ever() -> None:
    old = Waiting((0, 0), key="rare")
    made = collector(old, most_rows=1)
    ages = itertools.count(1)
    for _ in range(MOST_OVERTAKINGS):
        made.add(Waiting((-1, next(ages))))
        assert made.take_group() != [old]
    made.add(Waiting((-1, next(ages))))
    assert made.take_group() == [old]


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.integers(1, 6), st.sampled_from(["a", "b", None])),
        max_size=30,
    )
)
def test_every_member_is_in_one_group_which_it_fits(
    given_members: list[tuple[int, int, str | None]],
) -> None:
    members = [
        Waiting((priority, age), rows, key)
        for age, (priority, rows, key) in enumerate(given_members)
    ]
    made = collector(*members)
    seen: list[Waiting] = []
    while made.waiting_count:
        group = made.take_group()
        assert len(group) == 1 or sum(member.row_count for member in group) <= made.most_rows
        assert len({member.key for member in group}) == 1
        assert len(group) == 1 or group[0].key is not None
        seen += group
    assert len(seen) == len(members) == len(set(map(id, seen)))
    assert made.row_count == 0
