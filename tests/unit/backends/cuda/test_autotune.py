"""Which plan wins, whatever was measured."""

from __future__ import annotations

import pytest

from aioinfer.backends.cuda.autotune import Choice, Timing, UselessError, choose, measure


def test_the_smallest_median_wins_and_not_the_luckiest_run() -> None:
    steady, lucky = Timing((2.0, 2.0, 2.1)), Timing((1.0, 3.0, 3.0))
    assert choose([lucky, steady]) == Choice(1, 2.0)


def test_what_is_as_good_as_the_best_wins_if_it_is_recommended_first() -> None:
    assert choose([Timing((1.5,)), Timing((1.01,)), Timing((1.0,))]).index == 1
    assert choose([Timing((1.03,)), Timing((1.0,))]).index == 1


def test_what_is_refused_does_not_win_however_fast() -> None:
    wrong = Timing((0.1,), refusal="it gives NaN")
    assert choose([wrong, Timing((1.0,)), Timing()]).index == 1


def test_if_nothing_can_be_used_the_reasons_are_told_once_each() -> None:
    timings = [Timing(refusal="it gives NaN"), Timing(refusal="no"), Timing(refusal="no"), Timing()]
    with pytest.raises(UselessError, match=r"^it gives NaN; no; it was not measured$"):
        choose(timings)
    with pytest.raises(UselessError):
        choose([])


def test_only_plans_that_may_win_are_looked_at_closely() -> None:
    glances = [Timing((1.0,)), Timing((2.9,)), Timing((3.1,)), Timing(refusal="no"), Timing()]
    gazed: list[int] = []

    def gaze(index: int) -> Timing:
        gazed.append(index)
        return Timing((0.5,))

    timings = measure(len(glances), glances.__getitem__, gaze)
    assert gazed == [0, 1]
    assert timings == [Timing((0.5,)), Timing((0.5,)), *glances[2:]]


def test_a_refused_plan_sets_no_pace() -> None:
    glances = [Timing((0.1,), refusal="it gives NaN"), Timing((1.0,))]
    timings = measure(2, glances.__getitem__, lambda index: Timing((float(index),)))
    assert timings == [glances[0], Timing((1.0,))]
    assert choose(timings).index == 1
