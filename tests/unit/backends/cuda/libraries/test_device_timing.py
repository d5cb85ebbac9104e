"""Timing plans, which say how long they take, on a device that believes them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.cuda.autotune import Timing
from aioinfer.backends.cuda.libraries.device_timing import BufferLayout, DeviceTimers, is_finite
from aioinfer.backends.cuda.libraries.plan_tuning import OperationBuffers
from unit.backends.cuda.libraries.timed_cupy import TimedCupy

CONV = OperationBuffers(
    "a convolution",
    "float16",
    (("x", (1, 8, 6, 6)), ("w", (8, 8, 3, 3)), ("bias", (8,)), ("y", (1, 8, 6, 6))),
    "y",
    100,
)
Y_BYTES = 8 * 6 * 6 * 2
POISON = b"\xff\xff"


class FakePlanned:
    """A plan that takes ``seconds`` and gives ``result`` for each element."""

    def __init__(self, cupy: TimedCupy, seconds: float, result: bytes | None) -> None:
        self._cupy, self.seconds, self.result = cupy, seconds, result
        self.error: DriverError | None = None
        self.capture_error: DriverError | None = None
        self.spoils_captures = False
        self.given: list[Sequence[int]] = []
        self.inputs: list[np.ndarray] = []

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        assert stream == 7
        if self.error is not None:
            raise self.error
        if self._cupy.captured is not None:
            self._cupy.is_spoilt = self.spoils_captures
            if self.capture_error is not None:
                raise self.capture_error
        self.given.append(tuple(addresses))
        self._cupy.run(lambda: self._run(addresses))

    def _run(self, addresses: Sequence[int]) -> None:
        self._cupy.clock += self.seconds
        x, *_, y, _ = addresses
        self.inputs.append(np.frombuffer(ctypes.string_at(x, Y_BYTES), np.float16))
        if self.result is not None:
            ctypes.memmove(y, self.result * (Y_BYTES // 2), Y_BYTES)


class Timed:
    """Plans with a timer for them."""

    def __init__(self, *kinds: tuple[float, bytes | None], cache_bytes: int = 0) -> None:
        self.cupy = TimedCupy()
        self.plans = [FakePlanned(self.cupy, *kind) for kind in kinds]
        self.timers = DeviceTimers(self.cupy, cache_bytes, 0)

    def timer(self) -> Any:
        return self.timers(CONV, self.plans)


ONE = np.float16(1.0).tobytes()


def test_a_glance_gives_the_seconds_of_a_run() -> None:
    timed = Timed((0.001, ONE), (0.003, ONE))
    with timed.timer() as timer:
        assert timer.glance(0).seconds == pytest.approx((0.001,))
        assert timer.glance(1).seconds == pytest.approx((0.003,))


def test_a_closer_look_replays_a_launch_graph_often() -> None:
    timed = Timed((0.0002, ONE), (1.0, ONE))
    with timed.timer() as timer:
        timer.glance(0), timer.glance(1)
        first, second = len(timed.plans[0].inputs), len(timed.plans[1].inputs)
        assert timer.gaze(0).seconds == pytest.approx((0.0002,) * 5)
        assert timer.gaze(1).seconds == pytest.approx((1.0,) * 5)
    assert len(timed.plans[0].inputs) - first == 6 * 10
    assert len(timed.plans[1].inputs) - second == 6 * 2


@pytest.mark.parametrize("by", ["the library", "the driver"])
def test_a_plan_that_cannot_be_captured_is_refused_and_the_others_are_timed(by: str) -> None:
    timed = Timed((0.0002, ONE), (0.0002, ONE))
    first, words = timed.plans[0], "cudaErrorStreamCaptureInvalidated"
    first.spoils_captures = True
    if by == "the library":
        words = "not while it captures"
        first.capture_error = DriverError(ErrorKind.OTHER, words)
    with timed.timer() as timer:
        timer.glance(0), timer.glance(1)
        assert timer.gaze(0) == Timing(refusal=f"it cannot be captured: {words}")
        assert timer.gaze(1).seconds == pytest.approx((0.0002,) * 5)


def test_inputs_are_small_numbers_that_differ() -> None:
    timed = Timed((0.001, ONE), cache_bytes=4096)
    with timed.timer() as timer:
        timer.glance(0)
        timer.glance(0)
    for given in timed.plans[0].inputs:
        assert len(np.unique(given)) > 100
        assert float(np.abs(given).max()) <= 1.0


@pytest.mark.parametrize("result", [None, POISON, np.float16(np.inf).tobytes()])
def test_what_gives_no_numbers_is_refused(result: bytes | None) -> None:
    timed = Timed((0.001, result))
    with timed.timer() as timer:
        assert timer.glance(0) == Timing(refusal="it gives NaN or infinity for finite inputs")


def test_what_a_library_refuses_to_run_is_refused_with_its_words() -> None:
    timed = Timed((0.001, ONE))
    timed.plans[0].error = DriverError(ErrorKind.OTHER, "not supported")
    with timed.timer() as timer:
        assert timer.glance(0) == Timing(refusal="not supported")


def test_runs_take_turns_in_buffers_that_do_not_fit_the_cache() -> None:
    layout = BufferLayout(CONV, cache=4096)
    set_bytes = layout.workspace // layout.set_count
    assert layout.set_count * set_bytes >= 2 * 4096
    assert (layout.set_count - 1) * set_bytes < 2 * 4096
    assert layout.offsets(layout.set_count) == layout.offsets(0)
    assert layout.total == layout.workspace + 256
    assert BufferLayout(CONV, cache=0).set_count == 1
    assert BufferLayout(CONV, cache=10**12).set_count == 16


def test_no_two_tensors_overlap_in_any_set() -> None:
    layout = BufferLayout(CONV, cache=4096)
    places = [
        (layout.offsets(run)[name], 2 * math.prod(shape))
        for run in range(layout.set_count)
        for name, shape in CONV.shapes
    ]
    places.append((layout.workspace, CONV.workspace_bytes))
    at = 0
    for start, size in sorted(places):
        assert start >= at
        assert start % 256 == 0
        at = start + size
    assert at <= layout.total


def test_the_workspace_comes_last_and_is_large_enough() -> None:
    timed = Timed((0.001, ONE))
    with timed.timer() as timer:
        timer.glance(0)
    (*_, y, workspace) = timed.plans[0].given[0]
    assert workspace >= y + Y_BYTES
    assert timed.cupy.allocated[0] == BufferLayout(CONV, 0).total


def test_after_an_error_the_stream_is_not_used_again() -> None:
    timed = Timed((0.001, ONE))
    with timed.timer() as timer:
        timer.glance(0)
    with pytest.raises(MemoryError), timed.timer():
        raise MemoryError
    with timed.timer():
        assert len(timed.cupy.streams) == 2


def test_on_a_device_one_operation_is_timed_at_a_time_whichever_library_has_it() -> None:
    first, second = Timed((0.001, ONE)), Timed((0.001, ONE))
    other_device = DeviceTimers(second.cupy, 0, 1)
    with first.timer():
        assert second.timers._turn.locked()
        assert not other_device._turn.locked()
    assert not second.timers._turn.locked()


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [("float16", np.float16), ("float32", np.float32), ("bfloat16", ml_dtypes.bfloat16)],
)
def test_infinities_and_nan_are_told_from_numbers(dtype: str, numpy_dtype: Any) -> None:
    largest = ml_dtypes.finfo(numpy_dtype).max
    numbers = np.array([0.0, -1.0, largest, -largest, 1e-7], numpy_dtype)
    assert is_finite(numbers.view(np.uint8), dtype)
    for bad in (np.nan, np.inf, -np.inf):
        numbers[3] = bad
        assert not is_finite(numbers.view(np.uint8), dtype)
