"""Integers that remember: what they compute, which decisions they hold, what they never let out."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.errors import AioInferError
from aioinfer.runtime.graph.sym_array import (
    array_of_lengths,
    array_of_numbers,
    decide_by,
    derived_arrays,
    integers_in,
)
from aioinfer.runtime.graph.sym_int import SymInt, Trace, identity_of, plain_int

LENGTHS = st.integers(0, 50)


class Replay:
    """The values of a trace for other free lengths."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def number(self, number: Any) -> Any:
        return self.values[number.place] if type(number) is SymInt else number

    def array(self, array: Any) -> Any:
        return array.recipe(self) if hasattr(array, "recipe") else array


def replayed(trace: Trace, *free: int) -> Replay | None:
    closed = trace.close()
    found: Replay | None = closed.values_for(free, Replay)
    return found


def program(a: Any, b: Any) -> Any:
    """Compute and decide as lowering does."""
    total = math.prod((a, b, 3)) + sum((a, b))
    if a > b:
        total = total - b
    if b % 4 == 0:
        total //= 4
    return max(a, total) * (2 if not a else 1) + abs(a - b) + (-b)


@given(LENGTHS, LENGTHS, LENGTHS, LENGTHS)
def test_a_replay_is_right_or_refused(a: int, b: int, c: int, d: int) -> None:
    trace = Trace((a, b))
    result = program(*trace.variables())
    assert plain_int(result) == program(a, b)
    other = replayed(trace, c, d)
    assert other is None or other.number(result) == program(c, d)


@given(LENGTHS, LENGTHS)
def test_the_same_lengths_are_never_refused(a: int, b: int) -> None:
    trace = Trace((a, b))
    result = program(*trace.variables())
    same = replayed(trace, a, b)
    assert same is not None
    assert same.number(result) == program(a, b)


def test_equal_operations_are_noted_once() -> None:
    trace = Trace((7,))
    (n,) = trace.variables()
    assert n * 3 + 1 is n * 3 + 1
    assert identity_of(n + 0) == identity_of(n * 1) == identity_of(n)


def test_equal_decisions_are_asked_for_and_held_once() -> None:
    asked = []

    def is_less(left: int, right: int) -> bool:
        asked.append((left, right))
        return left < right

    trace = Trace((7,))
    (n,) = trace.variables()
    for _ in range(2):
        assert trace.decide(is_less, n.place, trace.constant(9))
    assert replayed(trace, 8) is not None
    assert asked == [(7, 9), (8, 9)]


@pytest.mark.parametrize(
    "leak",
    [
        int,
        float,
        hash,
        str,
        "{}".format,
        operator.index,
        range,
        lambda n: [0] * n,
        lambda n: list(range(20))[:n],
        lambda n: {n: 1},
        lambda n: np.zeros(n),
        lambda n: np.array([n], np.int64),
        lambda n: np.arange(9) + n,
        lambda n: n / 2,
        lambda n: 0.5 * n,
        lambda n: n < 7.5,
        ctypes.c_int64,
    ],
)
def test_what_takes_the_number_holds_it(leak: Callable[[Any], object]) -> None:
    trace = Trace((7,))
    leak(trace.variables()[0])
    closed = trace.close()
    assert closed.values_for((7,), Replay) is not None
    assert closed.values_for((8,), Replay) is None


def test_isinstance_takes_it_for_an_int() -> None:
    (n,) = Trace((7,)).variables()
    assert isinstance(n, int)
    assert not isinstance(n, str)


def test_a_finished_trace_gives_no_numbers() -> None:
    trace = Trace((7,))
    (n,) = trace.variables()
    trace.close()
    for ask in (int, hash, lambda n: n + 1, lambda n: n == 5):
        with pytest.raises(AioInferError, match="finished trace"):
            ask(n)
    assert repr(n) == "7"


def test_a_division_by_what_becomes_zero_is_refused() -> None:
    trace = Trace((4,))
    (n,) = trace.variables()
    assert plain_int(12 // n) == 3
    assert replayed(trace, 0) is None


def test_a_list_keeps_its_numbers() -> None:
    trace = Trace((4, 5))
    a, b = trace.variables()
    made = array_of_numbers((a, -1, b * 2), is_scalar=False, dtype=np.int64)
    assert isinstance(made, np.ndarray)
    assert (made.shape, made.ndim, made.size, made.nbytes, made.dtype) == ((3,), 1, 3, 24, np.int64)
    assert [*map(identity_of, integers_in(made))] == [*map(identity_of, (a, -1, b * 2))]
    other = replayed(trace, 6, 7)
    assert other is not None
    np.testing.assert_array_equal(other.array(made), [6, -1, 14])


def test_numbers_alone_make_an_ordinary_array() -> None:
    assert type(array_of_numbers((1, 2), is_scalar=False, dtype=np.int64)) is np.ndarray
    assert array_of_numbers((3,), is_scalar=True, dtype=np.int64).shape == ()


@pytest.mark.parametrize("read", [np.asarray, np.sum, lambda a: a.tobytes(), lambda a: a[1:]])
def test_what_reads_an_array_holds_what_it_depends_on(read: Callable[[Any], object]) -> None:
    trace = Trace((4, 5))
    a, _b = trace.variables()
    read(array_of_numbers((a, 1), is_scalar=False, dtype=np.int64))
    closed = trace.close()
    assert closed.values_for((4, 9), Replay) is not None
    assert closed.values_for((5, 5), Replay) is None


def test_an_array_is_derived_again_for_other_lengths() -> None:
    table = np.arange(40.0).reshape(20, 2)
    trace = Trace((3,))
    (n,) = trace.variables()
    ends = array_of_numbers((n,), is_scalar=False, dtype=np.int64)
    (part,) = derived_arrays(lambda t, e: [t[: int(e[0])]], [table, ends], [(n, 2)])
    (twice,) = derived_arrays(lambda t: [t * 2], [part], [(n, 2)])
    assert decide_by(twice, lambda array: array[-1, -1] < 30)
    closed = trace.close()
    other: Replay = closed.values_for((5,), Replay)
    np.testing.assert_array_equal(other.array(twice), table[:5] * 2)
    assert closed.values_for((12,), Replay) is None  # what was decided by the content is not so


def test_a_derived_array_of_another_shape_is_refused() -> None:
    trace = Trace((3,))
    (n,) = trace.variables()
    ends = array_of_numbers((n,), is_scalar=False, dtype=np.int64)
    table = np.arange(4)
    (part,) = derived_arrays(lambda t, e: [t[: int(e[0])]], [table, ends], [(n,)])
    other = replayed(trace, 9)
    assert other is not None
    with pytest.raises(ArithmeticError):
        other.array(part)


def test_an_array_made_of_lengths() -> None:
    trace = Trace((3,))
    (n,) = trace.variables()
    made = array_of_lengths(lambda k: np.arange(k), (n,), (n,))
    assert type(array_of_lengths(lambda k: np.arange(k), (4,), (4,))) is np.ndarray
    other = replayed(trace, 6)
    assert other is not None
    np.testing.assert_array_equal(other.array(made), np.arange(6))
