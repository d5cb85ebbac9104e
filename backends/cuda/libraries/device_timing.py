"""Timing a library's plans on their device.

A plan is first run a few times for a glance, on random inputs and outputs full of NaN, which it has
to overwrite with finite numbers. A closer look replays a launch graph of many runs, so that the
host's part does not count; runs take turns in several sets of buffers, which together do not fit
into the device's L2 cache. All goes to a stream and memory of its own; other work of the device
disturbs it, which is why medians are compared.
"""

from __future__ import annotations

import contextlib
import gc
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from ...accelerator.queues.driver import DriverError
from ..autotune import Timing
from .plan_tuning import OperationBuffers
from .planned import Planned

__all__ = ["BufferLayout", "DeviceTimer", "DeviceTimers", "is_finite"]

_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_EXPONENTS = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}
_ALIGN_BYTES = 256
_MOST_SETS = 16
_PATTERN_BYTES = 1 << 20
_GLANCES = 3
_ROUNDS = 5
_ROUND_S = 0.002
_MOST_REPEATS = 20
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
_turns: dict[int, threading.Lock] = {}  # of devices: what runs beside it disturbs a measurement


class BufferLayout:
    """Where the tensors of an operation lie in one block of memory, in several sets.

    Sizes and offsets are in bytes; the workspace comes last and is shared by all sets.
    """

    def __init__(self, buffers: OperationBuffers, cache: int) -> None:
        itemsize = _DTYPES[buffers.dtype].itemsize
        self.sizes = {name: math.prod(shape) * itemsize for name, shape in buffers.shapes}
        """By the name of a tensor."""
        self._set = sum(map(_aligned, self.sizes.values()))
        self.set_count = min(_MOST_SETS, max(1, math.ceil(2 * cache / self._set)))
        self.total = self._set * self.set_count + _aligned(buffers.workspace_bytes)

    def offsets(self, run: int) -> dict[str, int]:
        """Where a run's tensors lie, by name."""
        found, at = {}, (run % self.set_count) * self._set
        for name, size in self.sizes.items():
            found[name] = at
            at += _aligned(size)
        return found

    @property
    def workspace(self) -> int:
        """Where the workspace lies."""
        return self._set * self.set_count


def is_finite(content: np.ndarray[Any, np.dtype[np.uint8]], dtype: str) -> bool:
    """True if no element is an infinity or NaN; ``content`` are the bytes of elements."""
    bits = content.view(f"u{_DTYPES[dtype].itemsize}")
    exponents = bits & bits.dtype.type(_EXPONENTS[dtype])
    return not bool((exponents == _EXPONENTS[dtype]).any())


class RefusedCaptureError(Exception):
    """What a plan enqueues cannot be captured."""


class DeviceTimers:
    """Makes timers for a device, which is current; one at a time, whichever library has the plans.

    ``cupy`` is CuPy; ``cache_bytes`` is the size of the device's L2 cache.
    """

    def __init__(self, cupy: Any, cache_bytes: int, device_id: int) -> None:
        self._cupy, self._cache_bytes = cupy, cache_bytes
        self._turn = _turns.setdefault(device_id, threading.Lock())
        self._stream: Any = None

    @contextmanager
    def __call__(
        self, buffers: OperationBuffers, planned: Sequence[Planned]
    ) -> Iterator[DeviceTimer]:
        """Yield a timer whose memory is taken meanwhile; raises what CuPy raises."""
        with self._turn:
            stream, self._stream = self._stream, None
            if stream is None:
                stream = self._cupy.cuda.Stream(non_blocking=True)
            yield DeviceTimer(self._cupy, stream, buffers, planned, self._cache_bytes)
            stream.synchronize()
            self._stream = stream  # after an error it may still capture, and is of no more use


class DeviceTimer:
    """Times the plans of one operation; see ``PlanTimer``."""

    def __init__(
        self,
        cupy: Any,
        stream: Any,
        buffers: OperationBuffers,
        planned: Sequence[Planned],
        cache_bytes: int,
    ) -> None:
        self._cuda, self._stream = cupy.cuda, stream
        self._dtype, self._output, self._planned = buffers.dtype, buffers.output, planned
        self._layout = BufferLayout(buffers, cache_bytes)
        self._memory = self._cuda.Memory(self._layout.total)
        self._quick: dict[int, float] = {}
        self._fill()

    def glance(self, index: int) -> Timing:
        """Run it a few times, and see that it gives numbers."""
        runtime = self._cuda.runtime
        output = self._address(self._layout.offsets(0)[self._output])
        size = self._layout.sizes[self._output]
        try:
            runtime.memsetAsync(output, 0xFF, size, self._stream.ptr)
            self._enqueue(index, 0)
            seconds = self._timed(lambda: self._enqueue_all(index, _GLANCES)) / _GLANCES
        except DriverError as error:
            self._stream.synchronize()
            return Timing(refusal=str(error))
        if not self._gave_numbers(output):
            return Timing(refusal="it gives NaN or infinity for finite inputs")
        self._quick[index] = seconds
        return Timing((seconds,))

    def gaze(self, index: int) -> Timing:
        """Replay a launch graph of it several times; a plan that cannot be captured is refused."""
        wanted = int(_ROUND_S / max(self._quick[index], 1e-9))
        repeats = min(_MOST_REPEATS, max(2, wanted))
        try:
            launch_graph = self._captured(lambda: self._enqueue_all(index, repeats))
        except RefusedCaptureError as refusal:
            return Timing(refusal=f"it cannot be captured: {refusal}")
        launch_graph.upload(self._stream)
        launch_graph.launch(self._stream)
        rounds = [self._timed(lambda: launch_graph.launch(self._stream)) for _ in range(_ROUNDS)]
        return Timing(tuple(seconds / repeats for seconds in rounds))

    def _address(self, offset: int) -> int:
        return int(self._memory.ptr) + offset

    def _enqueue_all(self, index: int, count: int) -> None:
        for run in range(count):
            self._enqueue(index, run)

    def _enqueue(self, index: int, run: int) -> None:
        offsets = self._layout.offsets(run)
        addresses = [self._address(offset) for offset in offsets.values()]
        workspace = self._address(self._layout.workspace)
        self._planned[index].enqueue([*addresses, workspace], self._stream.ptr)

    def _captured(self, enqueue: Callable[[], None]) -> Any:
        """Make a CUDA graph; the collector would run finalisers that call CUDA meanwhile."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._stream.begin_capture()
            try:
                enqueue()
            except DriverError as error:
                with contextlib.suppress(self._cuda.runtime.CUDARuntimeError):
                    self._stream.end_capture()  # or the stream would go on with it
                raise RefusedCaptureError(error.text) from error
            try:
                return self._stream.end_capture()
            except self._cuda.runtime.CUDARuntimeError as error:
                raise RefusedCaptureError(str(error)) from error
        finally:
            if was_enabled:
                gc.enable()

    def _timed(self, enqueue: Callable[[], None]) -> float:
        """Measure on the device how long what is enqueued takes, in seconds."""
        before, after = self._cuda.Event(), self._cuda.Event()
        before.record(self._stream)
        enqueue()
        after.record(self._stream)
        after.synchronize()
        return float(self._cuda.get_elapsed_time(before, after)) / 1e3

    def _fill(self) -> None:
        """Give every input random numbers between -1 and 1."""
        dtype = _DTYPES[self._dtype]
        count = _PATTERN_BYTES // dtype.itemsize
        pattern = np.random.default_rng(0).uniform(-1.0, 1.0, count).astype(dtype)
        runtime, stream = self._cuda.runtime, self._stream.ptr
        source = self._cuda.Memory(_PATTERN_BYTES)
        runtime.memcpyAsync(
            source.ptr, pattern.ctypes.data, _PATTERN_BYTES, _HOST_TO_DEVICE, stream
        )
        for run in range(self._layout.set_count):
            offsets = self._layout.offsets(run)
            for name, whole in self._layout.sizes.items():
                size = whole if name != self._output else 0
                for start in range(0, size, _PATTERN_BYTES):
                    part = min(_PATTERN_BYTES, size - start)
                    target = self._address(offsets[name] + start)
                    runtime.memcpyAsync(target, source.ptr, part, _DEVICE_TO_DEVICE, stream)
        self._stream.synchronize()  # the pattern is in use until then

    def _gave_numbers(self, output: int) -> bool:
        """Look at the beginning and the end of the output."""
        size = self._layout.sizes[self._output]
        part = min(_PATTERN_BYTES, size)
        content = np.empty(part, np.uint8)
        for start in dict.fromkeys((0, size - part)):
            self._cuda.runtime.memcpyAsync(
                content.ctypes.data, output + start, part, _DEVICE_TO_HOST, self._stream.ptr
            )
            self._stream.synchronize()
            if not is_finite(content, self._dtype):
                return False
        return True


def _aligned(size: int) -> int:
    return -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
