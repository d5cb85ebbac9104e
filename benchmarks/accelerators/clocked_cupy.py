"""A CuPy that computes nothing and takes time: for what the host does around a GPU.

Calls of the driver take what they may take on a real one, with or without the interpreter's lock as
CuPy has it, and are counted. Streams do their work in order on a clock of their own; a captured
graph takes ``graph_us``. Nothing is copied: what comes back is what happened to lie there.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections import Counter
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np

COPY_US, COPY_BYTES_PER_US = 3.0, 25_000
WAKE_US = 30.0
"""From a moment of the device to the thread that sleeps until it."""
RELEASED_NS = {
    "eventRecord": 600,
    "memcpyAsync": 1500,
    "streamWaitEvent": 400,
    "graphLaunch": 4000,
    "eventElapsedTime": 500,
    "eventSynchronize": 500,
    "kernelLaunch": 2500,
    "eventCreate": 1000,
}
"""Calls that give up the interpreter's lock."""
HELD_NS = {"eventQuery": 300, "getDevice": 60, "setDevice": 100}
_COMPILER_VERSION = (13, 9999)  # what it compiles is kept apart from what a real one does
_AREA_BYTES = 1 << 21
_PROPERTIES = {
    "name": b"Clocked GPU",
    "integrated": 0,
    "totalGlobalMem": 16 << 30,
    "sharedMemPerBlock": 49152,
    "maxThreadsPerBlock": 1024,
    "major": 9,
    "minor": 0,
}


class FakeRuntimeError(RuntimeError):
    """CUDARuntimeError; none comes."""

    status = 0


class FakeDriverError(FakeRuntimeError):
    """CUDADriverError."""


class FakeCompileError(Exception):
    """NVRTCError."""


class Spin:
    """Keeps a thread busy for so long, with or without the interpreter's lock."""

    def __init__(self) -> None:
        block = 1 << 17
        self._area = ctypes.create_string_buffer(_AREA_BYTES)
        self._fill = {True: ctypes.CDLL(None).memset, False: ctypes.PyDLL(None).memset}
        rates = []
        for _ in range(50):
            before_ns = perf_counter_ns()
            self._fill[False](self._area, 0, block)
            rates.append(block / (perf_counter_ns() - before_ns))
        self._bytes_per_ns = sorted(rates)[len(rates) // 2]

    def __call__(self, duration_ns: int, *, releases: bool) -> None:
        size = min(int(duration_ns * self._bytes_per_ns), _AREA_BYTES)
        self._fill[releases](self._area, 0, size)


class Stream:
    def __init__(self, cupy: ClockedCupy, **_: Any) -> None:
        self.cupy, self.ptr = cupy, cupy.name(self)
        self.end_ns = 0
        self.captured_us: float | None = None

    def add(self, took_us: float) -> None:
        if self.captured_us is not None:
            self.captured_us += took_us
        else:
            self.end_ns = max(self.end_ns, perf_counter_ns()) + int(took_us * 1e3)

    def synchronize(self) -> None:
        sleep_until(self.end_ns)

    def wait_event(self, event: Event) -> None:
        self.cupy.call("streamWaitEvent")
        self.end_ns = max(self.end_ns, event.time_ns)

    def begin_capture(self, *_: Any) -> None:
        self.captured_us = self.cupy.graph_us

    def end_capture(self) -> Graph:
        took_us, self.captured_us = self.captured_us, None
        assert took_us is not None
        return Graph(self.cupy, took_us)

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class Graph:
    def __init__(self, cupy: ClockedCupy, took_us: float) -> None:
        self._cupy, self._took_us = cupy, took_us

    def upload(self, stream: Stream) -> None: ...

    def launch(self, stream: Stream) -> None:
        self._cupy.call("graphLaunch")
        stream.add(self._took_us)


class Event:
    def __init__(
        self, cupy: ClockedCupy, *, block: bool = False, disable_timing: bool = False
    ) -> None:
        cupy.call("eventCreate")
        self.cupy, self.ptr = cupy, cupy.name(self)
        self.blocks, self.has_time, self.time_ns = block, not disable_timing, 0

    def record(self, stream: Stream) -> None:
        self.cupy.call("eventRecord")
        self.time_ns = max(stream.end_ns, perf_counter_ns())

    def synchronize(self) -> None:
        self.cupy.call("eventSynchronize")
        if self.time_ns > perf_counter_ns():
            sleep_until(self.time_ns + int(WAKE_US * 1e3))


class ClockedCupy:
    """The module; ``graph_us`` is what graphs take that are captured from now on."""

    def __init__(self) -> None:
        self.graph_us = 10.0
        self.counts: Counter[str] = Counter()
        self._spin = Spin()
        self._named: dict[int, Any] = {}
        self._handles = itertools.count(1 << 12)
        self.cuda = SimpleNamespace(
            runtime=self._runtime(),
            driver=SimpleNamespace(
                CUDADriverError=FakeDriverError,
                moduleLoadData=self.name,
                moduleGetFunction=lambda module, name: self.name(name),
                moduleUnload=lambda module: None,
                launchKernel=self._launch,
            ),
            nvrtc=SimpleNamespace(
                NVRTCError=FakeCompileError,
                getVersion=lambda: _COMPILER_VERSION,
                getSupportedArchs=lambda: (90,),
                createProgram=lambda *given: self.name(given),
                compileProgram=lambda program, options: None,
                getCUBIN=lambda program: b"no code",
                destroyProgram=lambda program: None,
            ),
            Stream=lambda **named: Stream(self, **named),
            Event=lambda **named: Event(self, **named),
            PinnedMemory=lambda size: np.zeros(size, np.uint8),
            PinnedMemoryPointer=lambda block, offset: memoryview(block),
            get_elapsed_time=self._elapsed_ms,
        )

    def name(self, thing: Any) -> int:
        handle = next(self._handles)
        self._named[handle] = thing
        return handle

    def call(self, name: str) -> None:
        """Count a call of the driver, and take its time."""
        self.counts[name] += 1
        took_ns = RELEASED_NS.get(name)
        if took_ns is None:
            self._spin(HELD_NS[name], releases=False)
        else:
            self._spin(took_ns, releases=True)

    def _runtime(self) -> Any:
        return SimpleNamespace(
            CUDARuntimeError=FakeRuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            getDevice=lambda: self.call("getDevice") or 0,
            setDevice=lambda index: self.call("setDevice"),
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda index: _PROPERTIES,
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 13000,
            malloc=lambda size: self.name(size) << 20,
            free=lambda address: None,
            memcpyAsync=self._copy,
            eventQuery=self._query,
        )

    def _launch(self, function: int, *given: int) -> None:
        self.call("kernelLaunch")
        stream = self._named[given[7]]
        if stream.captured_us is None:
            stream.add(self.graph_us)

    def _copy(self, target: int, source: int, size_bytes: int, kind: int, handle: int) -> None:
        self.call("memcpyAsync")
        self._named[handle].add(COPY_US + size_bytes / COPY_BYTES_PER_US)

    def _query(self, handle: int) -> int:
        self.call("eventQuery")
        return 0 if self._named[handle].time_ns <= perf_counter_ns() else 600

    def _elapsed_ms(self, start: Event, end: Event) -> float:
        self.call("eventElapsedTime")
        assert start.has_time
        assert end.has_time
        return (end.time_ns - start.time_ns) / 1e6


def sleep_until(time_ns: int) -> None:
    left_ns = time_ns - perf_counter_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
