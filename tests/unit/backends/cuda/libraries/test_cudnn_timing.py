"""Timing plans on a device whose memory is the host's and whose clock is the test's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.cuda.autotune import Timing
from aioinfer.backends.cuda.libraries.cudnn_conv import describe_conv
from aioinfer.backends.cuda.libraries.cudnn_graph import GraphDescription
from aioinfer.backends.cuda.libraries.cudnn_plans import CudnnPlanned
from aioinfer.backends.cuda.libraries.cudnn_timing import BufferLayout, DeviceTimers, is_finite
from aioinfer.runtime.accelerator.driver import DriverError, ErrorKind
from unit.backends.cuda.libraries.conv_operation import conv_operation

CONV = describe_conv(conv_operation(image=(1, 8, 6, 6), filters=(8, 8, 3, 3)))
Y_BYTES = 8 * 6 * 6 * 2
POISON = b"\xff\xff"


class FakeCupy:
    """What of CuPy is used; enqueued work is done at once, or noted in a capture."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.captured: list[Callable[[], None]] | None = None
        self.allocated: list[int] = []
        self.streams: list[Any] = []
        runtime = SimpleNamespace(memcpyAsync=self._copy, memsetAsync=self._set)
        self.cuda = SimpleNamespace(
            runtime=runtime,
            Memory=self._memory,
            Stream=self._stream,
            Event=lambda: SimpleNamespace(record=self._record, synchronize=lambda: None),
            get_elapsed_time=self._elapsed,
        )
        self._times: list[float] = []

    def run(self, work: Callable[[], None]) -> None:
        """Do what is enqueued on the stream."""
        if self.captured is None:
            work()
        else:
            self.captured.append(work)

    def _memory(self, size: int) -> SimpleNamespace:
        self.allocated.append(size)
        block = np.zeros(size, np.uint8)
        return SimpleNamespace(block=block, ptr=block.ctypes.data)

    def _stream(self, non_blocking: bool) -> SimpleNamespace:
        assert non_blocking
        stream = SimpleNamespace(
            ptr=7, synchronize=lambda: None, begin_capture=self._begin, end_capture=self._end
        )
        self.streams.append(stream)
        return stream

    def _begin(self) -> None:
        self.captured = []

    def _end(self) -> SimpleNamespace:
        works, self.captured = self.captured, None
        assert works is not None
        return SimpleNamespace(
            upload=lambda stream: None, launch=lambda stream: [work() for work in works]
        )

    def _copy(self, to: int, come: int, size: int, kind: int, stream: int) -> None:
        assert self.captured is None
        assert stream == 7
        ctypes.memmove(to, come, size)

    def _set(self, to: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(to, value, size)

    def _record(self, stream: Any) -> None:
        self._times.append(self.clock)

    def _elapsed(self, before: Any, after: Any) -> float:
        begin, end = self._times[-2:]
        return (end - begin) * 1e3


class FakePlanned:
    """A plan that takes ``seconds`` and gives ``result`` for each element."""

    workspace_bytes = 100

    def __init__(self, cupy: FakeCupy, seconds: float, result: bytes | None) -> None:
        self._cupy, self.seconds, self.result = cupy, seconds, result
        self.error: DriverError | None = None
        self.given: list[Sequence[int]] = []
        self.inputs: list[np.ndarray] = []

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        assert stream == 7
        if self.error is not None:
            raise self.error
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
        self.cupy = FakeCupy()
        self.plans = [FakePlanned(self.cupy, *kind) for kind in kinds]
        self.timers = DeviceTimers(self.cupy, cache_bytes)

    def timer(self, description: GraphDescription = CONV) -> Any:
        return self.timers(description, cast("list[CudnnPlanned]", self.plans))


ONE = np.float16(1.0).tobytes()


def test_a_glance_gives_the_seconds_of_a_run() -> None:
    timed = Timed((0.001, ONE), (0.003, ONE))
    with timed.timer() as timer:
        assert timer.glance(0).seconds == pytest.approx((0.001,))
        assert timer.glance(1).seconds == pytest.approx((0.003,))


def test_a_closer_look_replays_a_recording_often() -> None:
    timed = Timed((0.0002, ONE), (1.0, ONE))
    with timed.timer() as timer:
        timer.glance(0), timer.glance(1)
        first, second = len(timed.plans[0].inputs), len(timed.plans[1].inputs)
        assert timer.gaze(0).seconds == pytest.approx((0.0002,) * 5)
        assert timer.gaze(1).seconds == pytest.approx((1.0,) * 5)
    assert len(timed.plans[0].inputs) - first == 6 * 10
    assert len(timed.plans[1].inputs) - second == 6 * 2


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


def test_what_cudnn_refuses_to_run_is_refused_with_its_words() -> None:
    timed = Timed((0.001, ONE))
    timed.plans[0].error = DriverError(ErrorKind.OTHER, "not supported")
    with timed.timer() as timer:
        assert timer.glance(0) == Timing(refusal="not supported")


def test_runs_take_turns_in_buffers_that_do_not_fit_the_cache() -> None:
    layout = BufferLayout(CONV, 100, cache=4096)
    set_bytes = layout.workspace // layout.set_count
    assert layout.set_count * set_bytes >= 2 * 4096
    assert (layout.set_count - 1) * set_bytes < 2 * 4096
    assert layout.offsets(layout.set_count) == layout.offsets(0)
    assert layout.total == layout.workspace + 256
    assert BufferLayout(CONV, 0, cache=0).set_count == 1
    assert BufferLayout(CONV, 0, cache=10**12).set_count == 16


def test_no_two_tensors_overlap_in_any_set() -> None:
    layout = BufferLayout(CONV, 64, cache=4096)
    places = [
        (layout.offsets(run)[tensor.name], layout.size(tensor))
        for run in range(layout.set_count)
        for tensor in CONV.tensors
    ]
    places.append((layout.workspace, 64))
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
    layout = BufferLayout(CONV, FakePlanned.workspace_bytes, 0)
    assert timed.cupy.allocated[0] == layout.total


def test_after_an_error_the_stream_is_not_used_again() -> None:
    timed = Timed((0.001, ONE))
    with timed.timer() as timer:
        timer.glance(0)
    with pytest.raises(MemoryError), timed.timer():
        raise MemoryError
    with timed.timer():
        assert len(timed.cupy.streams) == 2


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
