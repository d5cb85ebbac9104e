"""Native order of numbers: place by place what numpy's stable sorts give."""

import math

import numpy as np
import pytest

from aioinfer.backends.cpu.native.extension import native_extension
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.errors import RequestCancelledError
from aioinfer.runtime.operators.images.box_suppression import by_score
from aioinfer.runtime.operators.own.own_operators import top_k
from aioinfer.runtime.runs.stage import Stop

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42], np.float32)


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of one size or of all, some of them equal, some that are none."""
    chance = np.random.default_rng(seed)
    numbers = chance.standard_normal(shape) * 10.0 ** chance.integers(-30, 30)
    if seed % 3 == 0:
        numbers = chance.integers(-4, 4, shape) / 7
    if seed % 4 == 1:
        numbers = chance.choice(SPECIAL, shape)
    if seed % 5 == 4:
        numbers = np.where(chance.random(shape) < 0.2, chance.choice(SPECIAL, shape), numbers)
    return numbers.astype(np.float32)


@pytest.mark.parametrize("falls", [True, False])
@pytest.mark.parametrize("shape", [(1,), (24,), (25,), (400,), (5000,), (3, 60), (4, 1), (2, 2100)])
def test_the_first_of_each_row_are_those_of_a_stable_sort(
    shape: tuple[int, ...], falls: bool
) -> None:
    runner = step_runner(open_engine())
    for seed in range(20):
        rows = drawn(shape, seed)
        for count in {0, 1, shape[-1] // 7, shape[-1] // 2, shape[-1] - 1, shape[-1]}:
            _, wanted = top_k(rows, np.array(count), largest=int(falls))
            found = runner.order_floats(rows, count, falls=falls, nan_last=not falls)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [0, 1, 30, 3000])
def test_scores_above_a_bound_come_by_falling_score(count: int) -> None:
    runner = step_runner(open_engine())
    for seed in range(20):
        scores = drawn((count,), seed)
        for least in (None, -np.inf, 0.0, -0.0, 1 / 7, np.inf):
            bound = None if least is None else np.float32(least)
            above = math.nan if bound is None else float(bound)
            found = runner.order_floats(scores, count, falls=True, nan_last=True, above=above)
            np.testing.assert_array_equal(found, by_score(scores, bound))


@pytest.mark.parametrize(
    ("rows", "number_count", "place_count"), [(0, 4, 4), (-1, 4, 4), (3, 4, 3), (1, 4, 5)]
)
def test_rows_that_do_not_fit_are_refused(rows: int, number_count: int, place_count: int) -> None:
    numbers, places = np.zeros(number_count, np.float32), np.full(place_count, 77, np.int64)
    with pytest.raises(ValueError, match="rows of numbers"):
        native_extension().order_floats(math.nan, True, True, rows, numbers, places)
    assert (places == 77).all()


@pytest.mark.parametrize(("length", "kept"), [(3, 3), (400, 400), (400, 90)])
def test_rows_behind_the_one_that_set_the_stop_word_are_left_alone(length: int, kept: int) -> None:
    """Places lie in the word's own memory; the first one of the first row is not 0."""
    rows = np.sort(drawn((5, length), 2), axis=1)
    word = bytearray(5 * kept * 8)
    places = np.frombuffer(word, np.int64).reshape(5, kept)
    order = native_extension().order_floats
    assert order(math.nan, True, True, 5, rows, places, word) is None
    assert places[0].tolist() == np.argsort(-rows[0], kind="stable")[:kept].tolist()
    assert not places[1:].any()


@pytest.mark.parametrize(("length", "kept"), [(3, 3), (400, 400), (400, 90), (400, 0)])
@pytest.mark.parametrize("bound", [math.nan, -1e30])
def test_a_run_that_is_stopped_already_gets_its_error(length: int, kept: int, bound: float) -> None:
    runner, stop = step_runner(open_engine()), Stop()
    stop.word = bytearray(1)
    stop.set(RequestCancelledError("stopped"))
    places = np.full(kept, 77, np.int64)
    row = drawn((length,), 0)
    order = native_extension().order_floats
    assert order(bound, True, True, 1, row, places, stop.word) is None
    assert (places == 77).all()
    if kept:
        with pytest.raises(RequestCancelledError, match="stopped"):
            runner.order_floats(row, kept, falls=True, nan_last=True, above=bound, stop=stop)
