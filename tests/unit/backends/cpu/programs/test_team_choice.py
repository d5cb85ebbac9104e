"""The size of a team, in virtual time: halved by runs that were held up, grown into free CPUs."""

from __future__ import annotations

import pytest

from aioinfer.backends.cpu.programs.team_choice import (
    HELD_UP_NS,
    LONGEST_WAIT_NS,
    LOOK_NS,
    RELAPSE_NS,
    TeamChoice,
)

pytestmark = pytest.mark.needs_no_library

MS = 1_000_000


def free_run(choice: TeamChoice, now_ns: int = 0) -> bool:
    return choice.ran(choice.size, 4 * MS, 4 * MS - 100_000, now_ns)


def held_up_run(choice: TeamChoice, now_ns: int = 0) -> bool:
    return choice.ran(choice.size, 30 * MS, 5 * MS, now_ns)


def shrink(choice: TeamChoice, now_ns: int = 0) -> None:
    size = choice.size
    while choice.size == size:
        held_up_run(choice, now_ns)


def test_a_team_that_always_had_its_cpus_keeps_its_size() -> None:
    choice = TeamChoice(8)
    assert not any(free_run(choice, now) for now in range(1000))
    assert choice.size == 8


def test_two_runs_in_a_row_that_were_held_up_halve_the_team() -> None:
    choice = TeamChoice(8)
    assert not held_up_run(choice)
    assert held_up_run(choice)
    assert choice.size == 4


def test_now_and_then_a_run_may_be_held_up() -> None:
    choice = TeamChoice(2)
    for _ in range(50):
        held_up_run(choice)
        free_run(choice)
        free_run(choice)
    assert choice.size == 2


def test_short_runs_may_lose_what_an_interrupt_takes() -> None:
    choice = TeamChoice(2)
    for _ in range(50):
        choice.ran(2, 2 * HELD_UP_NS - 2, HELD_UP_NS - 1, 0)
    assert choice.size == 2


def test_long_runs_may_lose_a_small_part() -> None:
    choice = TeamChoice(2)
    for _ in range(50):
        choice.ran(2, 100 * MS, 90 * MS, 0)
    assert choice.size == 2


def test_runs_by_another_team_than_the_present_one_say_nothing() -> None:
    choice = TeamChoice(4)
    shrink(choice)
    for _ in range(10):
        choice.ran(4, 30 * MS, 5 * MS, 0)
    assert choice.size == 2


def test_it_never_goes_below_one_thread() -> None:
    choice = TeamChoice(3)
    shrink(choice)
    assert choice.size == 1
    assert not any(held_up_run(choice) for _ in range(10))
    assert choice.size == 1


def test_nobody_looks_for_free_cpus_while_the_team_is_whole() -> None:
    assert not TeamChoice(2).wants_look(10**12)


def test_a_smaller_team_looks_at_intervals() -> None:
    choice = TeamChoice(2)
    shrink(choice, 7 * MS)
    assert not choice.wants_look(7 * MS + LOOK_NS - 1)
    assert choice.wants_look(7 * MS + LOOK_NS)
    assert not choice.looked(1.0, 7 * MS + LOOK_NS)
    assert not choice.wants_look(7 * MS + 2 * LOOK_NS - 1)


@pytest.mark.parametrize(
    ("most", "free_cpus", "size"),
    [
        (2, 1.0, 1),
        (2, 1.7, 1),
        (2, 1.9, 2),
        (2, 2.0, 2),
        (16, 1.9, 2),
        (16, 7.5, 4),
        (16, 15.0, 8),
        (16, 16.0, 16),
        (6, 5.0, 3),
        (6, 6.0, 6),
        (7, 3.0, 3),
        (8, 0.0, 1),
    ],
)
def test_it_grows_into_the_cpus_that_are_free(most: int, free_cpus: float, size: int) -> None:
    choice = TeamChoice(most)
    while choice.size > 1:
        shrink(choice)
    assert choice.looked(free_cpus, LOOK_NS) is (size > 1)
    assert choice.size == size


def test_where_the_system_does_not_tell_it_tries_one_step() -> None:
    choice = TeamChoice(8)
    while choice.size > 1:
        shrink(choice)
    assert choice.looked(None, LOOK_NS)
    assert choice.size == 2


def test_a_cpu_that_is_used_in_turns_is_tried_seldom() -> None:
    choice, now = TeamChoice(2), 0
    tries = []
    shrink(choice, now)
    while now < 400 * LOOK_NS:
        now += LOOK_NS
        if choice.looked(1.6, now):
            tries.append(now // LOOK_NS)
            shrink(choice, now)
    assert tries == [10, 30, 70, 150, 310]


def test_a_cpu_that_is_used_all_the_time_is_not_tried() -> None:
    choice = TeamChoice(2)
    shrink(choice)
    assert not any(choice.looked(1.1, now * LOOK_NS) for now in range(1000))


def test_who_is_held_up_soon_after_growing_waits_longer_each_time() -> None:
    choice, now, waits = TeamChoice(2), 0, []
    shrink(choice, now)
    for _ in range(9):
        began = now
        while not choice.wants_look(now):
            now += LOOK_NS
        waits.append((now - began) // LOOK_NS)
        choice.looked(None, now)
        shrink(choice, now)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert 64 * LOOK_NS == LONGEST_WAIT_NS


def test_who_was_free_for_long_is_soon_back() -> None:
    choice = TeamChoice(2)
    shrink(choice, 0)
    choice.looked(2.0, LOOK_NS)
    shrink(choice, LOOK_NS)  # a relapse: the wait doubles
    choice.looked(2.0, 3 * LOOK_NS)
    late = 3 * LOOK_NS + RELAPSE_NS
    shrink(choice, late)
    assert choice.wants_look(late + LOOK_NS)


def test_it_says_what_it_is() -> None:
    assert repr(TeamChoice(4)) == "<TeamChoice 4 of 4 threads>"
