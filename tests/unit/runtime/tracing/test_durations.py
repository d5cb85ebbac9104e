"""Durations in buckets: exact where they say so, within 6 % elsewhere."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioinfer.runtime.tracing.durations import DurationCounts, Durations, bucket_of, upper_end_s

NS = st.integers(0, 2**62)


def counted(*durations_ns: int) -> Durations:
    counts = DurationCounts()
    if durations_ns:
        counts.add(np.array(durations_ns, np.int64))
    return counts.picture()


def test_nothing_is_all_zeros() -> None:
    nothing = counted()
    assert nothing == Durations()
    assert (nothing.mean_s, nothing.p50_s, nothing.p99_s, nothing.count_within(1.0)) == (0, 0, 0, 0)


def test_count_sum_and_maximum_are_exact() -> None:
    some = counted(1_000, 2_000, 9_000)
    assert (some.count, some.sum_s, some.max_s) == (3, 12e-6, 9e-6)
    assert some.mean_s == pytest.approx(4e-6)


@given(st.lists(NS, min_size=1, max_size=50), st.floats(0, 100))
@example([15 * 2**49 - 1, 2**52], 50)  # the last of their buckets, as doubles have them
@example([15 * 2**52 - 11, 2**56], 50)
@example([2**52, 2**56], 50)
def test_a_percentile_is_off_by_6_percent_at_most(values: list[int], number: float) -> None:
    rank = max(1, math.ceil(len(values) * number / 100))
    exact_s = sorted(values)[rank - 1] / 1e9
    assert counted(*values).percentile_s(number) == pytest.approx(exact_s, rel=0.06, abs=1e-9)


@given(NS)
def test_a_duration_lies_in_its_bucket(value: int) -> None:
    (place,) = bucket_of(np.array([value], np.int64)).tolist()
    exact = float(value) / 1e9
    assert exact <= upper_end_s(place)
    assert place == 0 or upper_end_s(place - 1) <= exact * (1 + 1e-15) or place == 1


def test_the_bounds_of_buckets_rise_by_an_eighth_at_most() -> None:
    ends = [upper_end_s(place) for place in range(1, 500)]
    for lower, upper in pairwise(ends):
        assert 1 < upper / lower <= 1.125 + 1e-12


def test_adding_bit_by_bit_is_adding_at_once() -> None:
    values = [3, 50, 700, 700, 10**9]
    counts = DurationCounts()
    for value in values:
        counts.add(np.array([value], np.int64))
    assert counts.picture() == counted(*values)


def test_a_picture_is_not_changed_by_what_comes_later() -> None:
    counts = DurationCounts()
    counts.add(np.array([100], np.int64))
    before = counts.picture()
    counts.add(np.array([200], np.int64))
    assert before == counted(100)


def test_a_difference_holds_what_came_in_between() -> None:
    counts = DurationCounts()
    counts.add(np.array([10, 10**9], np.int64))
    before = counts.picture()
    assert counts.picture().since(before) == Durations()
    counts.add(np.array([1_000, 1_000, 2_000], np.int64))
    between = counts.picture().since(before)
    assert between.count == 3
    assert between.sum_s == pytest.approx(4e-6)
    assert between.p50_s == pytest.approx(1e-6, rel=0.06)
    assert between.max_s == pytest.approx(2e-6, rel=0.13), "by its bucket only"


def test_an_exporter_counts_within_bounds_of_its_own() -> None:
    some = counted(*[1_000] * 5, *[1_000_000] * 3)
    bounds = [0.0, 0.5e-6, 1e-5, 1e-3 / 2, 2e-3, math.inf]
    assert [some.count_within(bound) for bound in bounds] == [0, 0, 5, 5, 8, 8]


def test_those_of_no_length_are_told_without_any_that_was_counted() -> None:
    picture = DurationCounts().picture(3)
    assert (picture.count, picture.sum_s, picture.p99_s) == (3, 0.0, 0.0)
    assert picture.buckets == ((0.0, 3),)
