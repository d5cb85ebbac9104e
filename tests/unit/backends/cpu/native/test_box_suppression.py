"""Native suppression of boxes: box by box what numpy keeps, and bounds on what it is given."""

import numpy as np
import pytest

from aioinfer.backends.cpu.native.extension import native_extension
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.errors import RequestCancelledError
from aioinfer.runtime.operators.images.box_suppression import keep
from aioinfer.runtime.runs.stage import Stop


def drawn(count: int, seed: int) -> np.ndarray:
    """Boxes that overlap, some without an area, some equal, some that are no numbers."""
    chance = np.random.default_rng(seed)
    low = chance.random((count, 2), np.float32) * 10
    boxes = np.concatenate([low, low + chance.random((count, 2), np.float32) * 3 - 0.2], axis=1)
    boxes[::7] = boxes[::7].round()
    boxes[3::11, 2:] = boxes[3::11, :2]
    boxes[5::13, chance.integers(4)] = [np.nan, np.inf, -np.inf][seed % 3]
    return np.ascontiguousarray(boxes, np.float32)


@pytest.mark.parametrize("most_overlap", [-0.5, 0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(("count", "limit"), [(0, 9), (1, 1), (64, 64), (65, 2**40), (700, 130)])
def test_it_keeps_what_numpy_keeps(count: int, limit: int, most_overlap: float) -> None:
    runner = step_runner(open_engine())
    for seed in range(6):
        corners = drawn(count, seed)
        order = np.random.default_rng(seed).permutation(count)
        threshold = np.float32(most_overlap)
        with np.errstate(all="ignore"):
            wanted = keep(corners, order, limit, threshold)
        found = runner.suppress_boxes(corners, order, limit, threshold)
        assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("number", [-1, 3])
def test_an_order_that_names_a_box_which_is_not_there_is_refused(number: int) -> None:
    runner = step_runner(open_engine())
    with pytest.raises(IndexError, match="names a box that is not there"):
        runner.suppress_boxes(drawn(3, 0), np.array([0, number]), 2, np.float32(0.5))


def spread(count: int, seed: int) -> np.ndarray:
    """Boxes of 40 classes, each beside the others as offsets put them; some reach over all."""
    chance = np.random.default_rng(seed)
    low = chance.random((count, 2)) * 30 + 40 * chance.integers(0, 40, (count, 1))
    size = chance.random((count, 2)) * [6, 30][seed % 2] - 0.1
    boxes = np.concatenate([low, low + size], axis=1)
    boxes[::211] = [0, 0, 1600, 1600]
    boxes[1::97, seed % 2] = -1e30  # beyond the first stretch of what is chosen for the others
    boxes[2::89] = boxes[2::89, [2, 3, 0, 1]]  # both sides are negative, and the area is not
    if seed >= 4:
        boxes[3::101, 2 + seed % 2] = np.inf
    return np.ascontiguousarray(boxes, np.float32)


@pytest.mark.parametrize("limit", [100, 2**40])
def test_far_boxes_are_told_apart_as_near_ones_are(limit: int) -> None:
    runner = step_runner(open_engine())
    for seed in range(8):
        corners = spread(2500, seed)
        if seed % 4 < 2:
            corners = corners[np.abs(corners).max(axis=1) < 1e5]
        order = np.random.default_rng(seed).permutation(len(corners))
        with np.errstate(all="ignore"):
            wanted = keep(corners, order, limit, np.float32(0.4))
        found = runner.suppress_boxes(corners, order, limit, np.float32(0.4))
        assert found.tolist() == wanted.tolist()
        assert 0 < wanted.size <= min(limit, len(corners) - 1)


@pytest.mark.parametrize("side", [np.inf, 3e38])
def test_infinite_boxes_are_kept_and_lie_in_no_stretch(side: float) -> None:
    """In all of them they would take minutes here, and gigabytes for a few more."""
    chance = np.random.default_rng(1)
    low = chance.random((20000, 2)) * 1e4
    corners = np.concatenate([low, low + chance.random((20000, 2)) * 200], axis=1)
    corners[::2] = [-side, -side, side, side]
    corners = np.ascontiguousarray(corners, np.float32)
    runner = step_runner(open_engine())
    order, threshold = np.arange(20000), np.float32(0.3)
    finite = runner.suppress_boxes(corners, order[1::2], 2**40, threshold)
    assert 0 < finite.size < 10000
    found = runner.suppress_boxes(corners, order, 2**40, threshold)
    assert found.tolist() == sorted([*finite.tolist(), *order[::2].tolist()])


def test_it_stops_before_the_box_behind_the_one_that_set_the_word() -> None:
    """What is kept lies in the stop word's own memory, so the first box that is kept sets it."""
    corners = np.tile(np.array([0, 0, 1, 1], np.float32), (9, 1)) + 2 * np.arange(9)[:, None]
    corners = np.ascontiguousarray(corners, np.float32)
    order = np.arange(8, -1, -1)
    word = bytearray(order.nbytes)
    kept = np.frombuffer(word, np.int64)
    assert native_extension().suppress_boxes(0.5, corners, order, kept, word) is None
    assert kept.tolist() == [8, *[0] * 8]


def test_a_run_that_is_stopped_gets_its_error() -> None:
    runner, stop = step_runner(open_engine()), Stop()
    stop.word = bytearray(1)
    order, most_overlap = np.arange(9), np.float32(0.5)
    assert runner.suppress_boxes(drawn(9, 0), order, 1, most_overlap, stop).size == 1
    stop.set(RequestCancelledError("stopped"))
    with pytest.raises(RequestCancelledError, match="stopped"):
        runner.suppress_boxes(drawn(9, 0), order, 1, most_overlap, stop)


@pytest.mark.parametrize("word", [b"1", bytearray(), 1])
def test_a_word_that_no_thread_could_set_is_refused(word: object) -> None:
    steps, numbers = native_extension(), np.zeros(4, np.int64)
    with pytest.raises(TypeError, match="a stop word is a bytearray"):
        steps.suppress_boxes(0.5, np.zeros(16, np.float32), numbers, numbers.copy(), word)
    with pytest.raises(TypeError, match="a stop word is a bytearray"):
        steps.order_floats(0.0, True, True, 1, np.zeros(4, np.float32), numbers, word)
