"""As much of CuPy as the programs of raw costs call, on numpy and without any time passing.

Work is done when it is enqueued, or noted where its stream captures. Two kernels are known, by
their names. Calls that CuPy's documentation does not have fail.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["make_cupy"]

Work = Callable[[], Any]


class Array(np.ndarray):  # type: ignore[type-arg]
    """An array whose ``data`` has an address, as CuPy's has."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data, memset_async=self._fill_bytes)

    def _fill_bytes(self, value: int, size_bytes: int, stream: Any) -> None:
        stream.do(lambda: ctypes.memset(self.ctypes.data, value, size_bytes))


class Graph:
    def __init__(self, work: list[Work]) -> None:
        self._work = work

    def upload(self, stream: Any) -> None:
        stream.check()

    def launch(self, stream: Any) -> None:
        stream.check()
        for each in self._work:
            each()


class Stream:
    current: list[Stream]

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = id(self)
        self._noted: list[Work] | None = None
        by_address[self.ptr] = self

    def check(self) -> None:
        assert self._noted is None, "not while the stream captures"

    def do(self, work: Work) -> None:
        if self._noted is None:
            work()
        else:
            self._noted.append(work)

    def synchronize(self) -> None:
        self.check()

    def wait_event(self, event: Event) -> None:
        assert event.is_recorded

    def begin_capture(self) -> None:
        self.check()
        self._noted = []

    def end_capture(self) -> Graph:
        assert self._noted is not None
        noted, self._noted = self._noted, None
        return Graph(noted)

    def __enter__(self) -> Stream:
        Stream.current.append(self)
        return self

    def __exit__(self, *_error: Any) -> None:
        Stream.current.pop()


by_address: dict[int, Stream] = {}
Stream.current = [Stream()]


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.ptr, self.has_times, self.is_recorded = id(self), not disable_timing, False

    def record(self, stream: Stream) -> None:
        stream.check()
        self.is_recorded = True

    def synchronize(self) -> None:
        assert self.is_recorded


class RawKernel:
    def __init__(self, code: str, name: str) -> None:
        assert f"void {name}(" in code
        self._compute = {"add_one": add_one, "spin": spin}[name]

    def __call__(self, grid: Any, block: Any, args: Any, *, stream: Stream | None = None) -> None:
        assert all(isinstance(size, int) for size in (*grid, *block))
        (stream or Stream.current[-1]).do(lambda: self._compute(*args))


def add_one(x: Array, count: np.int32) -> None:
    assert isinstance(count, np.int32)
    x.ravel()[:count] = x.ravel()[:count] * np.float32(0.999) + 1


def spin(ns: np.int64, word: np.uint64, value: np.int64) -> None:
    if word:
        ctypes.c_int64.from_address(int(word)).value = int(value)


def memcpy_async(target: int, source: int, size_bytes: int, kind: int, stream: int) -> None:
    assert kind in (1, 2, 3)
    by_address[stream].do(lambda: ctypes.memmove(target, source, size_bytes))


def elapsed_ms(begin: Event, end: Event) -> float:
    assert begin.has_times
    assert end.has_times
    return 1.0


def elementwise_kernel(*_texts: str) -> Callable[..., Any]:
    def call(x: Any, y: Any, *, stream: Stream) -> None:
        stream.do(lambda: None)

    return call


def matmul(a: Any, b: Any, out: Any) -> None:
    Stream.current[-1].check()  # CuPy sets cuBLAS's stream, and refuses to while it captures
    np.matmul(a, b, out=out)


def as_array(array: Any) -> Array:
    return np.asarray(array).view(Array)


def make_cupy() -> ModuleType:
    """Make the module."""
    made: Any = ModuleType("cupy")
    chance = np.random.default_rng(0)
    runtime = SimpleNamespace(
        memcpyAsync=memcpy_async,
        eventQuery=lambda address: 0,
        memGetInfo=lambda: (1 << 30, 2 << 30),
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda index: {"name": b"A GPU", "uuid": b"\x01", "warpSize": 32},
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    )
    made.cuda = SimpleNamespace(
        Device=lambda index: SimpleNamespace(use=lambda: None),
        Event=Event,
        Stream=Stream,
        alloc_pinned_memory=bytearray,
        get_current_stream=lambda: Stream.current[-1],
        get_elapsed_time=elapsed_ms,
        is_available=lambda: True,
        runtime=runtime,
    )
    made.random = SimpleNamespace(
        standard_normal=lambda shape, dtype: as_array(chance.standard_normal(shape, dtype)),
        randint=lambda low, high, size, dtype: as_array(chance.integers(low, high, size, dtype)),
    )
    made.RawKernel, made.ElementwiseKernel, made.matmul = RawKernel, elementwise_kernel, matmul
    made.uint8, made.float32 = np.uint8, np.float32
    made.empty = lambda shape, dtype=float: as_array(np.empty(shape, dtype))
    made.zeros = lambda shape, dtype=float: as_array(np.zeros(shape, dtype))
    made.empty_like = lambda array: as_array(np.empty_like(array))
    made.asarray = as_array
    return made
