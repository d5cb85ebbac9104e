"""CuPy for a device whose memory is the host's and whose clock is the test's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["TimedCupy"]


class CUDARuntimeError(RuntimeError):
    """What CuPy raises."""


class TimedCupy:
    """What of CuPy is used; enqueued work is done at once, or noted in a capture.

    ``clock`` is the device's, in seconds: what is run moves it.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self.captured: list[Callable[[], None]] | None = None
        self.is_spoilt = False
        """True if something was done that no capture allows."""
        self.allocated: list[int] = []
        self.memory: list[Any] = []
        self.streams: list[Any] = []
        runtime = SimpleNamespace(
            memcpyAsync=self._copy, memsetAsync=self._set, CUDARuntimeError=CUDARuntimeError
        )
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

    def _memory(self, size: int) -> Any:
        self.allocated.append(size)
        block = np.zeros(size, np.uint8)
        self.memory.append(SimpleNamespace(block=block, ptr=block.ctypes.data))
        return self.memory[-1]

    def _stream(self, non_blocking: bool) -> SimpleNamespace:
        assert non_blocking
        stream = SimpleNamespace(
            ptr=7, synchronize=lambda: None, begin_capture=self._begin, end_capture=self._end
        )
        self.streams.append(stream)
        return stream

    def _begin(self) -> None:
        assert self.captured is None
        self.captured, self.is_spoilt = [], False

    def _end(self) -> SimpleNamespace:
        works, self.captured = self.captured, None
        assert works is not None
        if self.is_spoilt:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
        return SimpleNamespace(
            upload=lambda stream: None, launch=lambda stream: [work() for work in works]
        )

    def _copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        assert self.captured is None
        assert stream == 7
        ctypes.memmove(target, source, size)

    def _set(self, to: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(to, value, size)

    def _record(self, stream: Any) -> None:
        self._times.append(self.clock)

    def _elapsed(self, before: Any, after: Any) -> float:
        begin, end = self._times[-2:]
        return (end - begin) * 1e3
