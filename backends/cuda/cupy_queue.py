"""Streams of CUDA as in-order queues, and what is launched on them: kernels, plans, graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from ..accelerator.queues.driver import (
    Argument,
    Bytes,
    DriverError,
    ErrorKind,
    Event,
    Kernel,
    LaunchGraph,
    Memory,
)
from .cupy_device import CupyDevice
from .cupy_event import CupyEvent, EventPool, LastWait, Submission
from .cupy_memory import address_of
from .cupy_program import CupyKernel
from .cupy_user_kernel import UserKernel
from .libraries.planned import Planned

__all__ = ["CapturingQueue", "CupyLaunchGraph", "CupyQueue", "LibraryKernel"]

_LONGEST_SPIN_NS = 1_000_000
"""After a longer wait the next one sleeps: there is little to gain, and a core to lose."""


class Launched(Protocol):
    """What a queue can launch."""

    def enqueue(self, stream: Any, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        """Enqueue it once; its device is the current one. Raises what CuPy or a library raises."""


class LibraryKernel:
    """A plan of a library with addresses; the sizes of its launches say nothing."""

    __slots__ = ("_addresses", "_plan")

    def __init__(self, plan: Planned) -> None:
        self._plan = plan
        self._addresses: tuple[int, ...] = ()

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        self._addresses = tuple(map(address_of, arguments))

    def enqueue(self, stream: Any, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        self._plan.enqueue(self._addresses, stream.ptr)


class CupyLaunchGraph:
    """A CUDA graph, and the kernels that it launches, whose code it needs to its end."""

    __slots__ = ("_kernels", "graph")

    def __init__(self, graph: Any, kernels: Sequence[Launched]) -> None:
        self.graph, self._kernels = graph, tuple(kernels)

    def __del__(self) -> None:
        self.graph = None  # before the code


class CupyQueue:
    """A stream with its submissions; see the theory of operation in ``cupy_event.py``."""

    def __init__(self, device: CupyDevice, pool: EventPool, name: str) -> None:
        self.name, self.is_timed, self.spins = name, True, False
        self._device, self._runtime, self._pool = device, device.runtime, pool
        self._stream = device.on_device(device.cuda.Stream, non_blocking=True)
        self._submission: Submission | None = None
        self._wait = LastWait()
        """For the end of a run; of several in flight, for one that was waited for."""

    def write(self, target: Memory, source: Bytes) -> Event:
        kind = self._runtime.memcpyHostToDevice
        return self._copy(address_of(target), _host_address(source), source.nbytes, kind, source)

    def read(self, target: Bytes, source: Memory) -> Event:
        kind = self._runtime.memcpyDeviceToHost
        return self._copy(_host_address(target), address_of(source), target.nbytes, kind, target)

    def copy(
        self,
        target: Memory,
        source: Memory,
        size_bytes: int,
        target_offset_bytes: int = 0,
        source_offset_bytes: int = 0,
    ) -> Event:
        kind, to = self._runtime.memcpyDeviceToDevice, address_of(target) + target_offset_bytes
        return self._copy(to, address_of(source) + source_offset_bytes, size_bytes, kind)

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        self._end_timed_submission()
        submission = self._begun_submission()
        launched = _launched(kernel)
        self._device.on_device(launched.enqueue, self._stream, global_size, local_size)
        self._end_timed_submission()
        return CupyEvent(self._pool, self._stream, submission)

    def replay(self, launch_graph: LaunchGraph) -> Event:
        assert isinstance(launch_graph, CupyLaunchGraph)
        submission = self._begun_submission()
        self._device.called(launch_graph.graph.launch, self._stream)
        return CupyEvent(self._pool, self._stream, submission, launch_graph)

    def wait_for(self, events: Sequence[Event]) -> None:
        self._end_timed_submission()  # waiting is no part of what comes before or after
        for event in events:
            assert isinstance(event, CupyEvent)
            self._device.checked(self._stream.wait_event, event.end.raw)

    def marker(self, events: Sequence[Event], *, is_last: bool = False) -> Event:
        """Record an event: all commands before it, and what they waited for, are behind it."""
        enqueued_ns = perf_counter_ns()
        submission = self._submission
        is_timed = self.is_timed if submission is None else submission.begin is not None
        wait = self._wait if is_last else None
        spins = self.spins and self._wait.took_ns < _LONGEST_SPIN_NS
        recorded = self._pool.record(self._stream, is_timed=is_timed, wait=wait, spins=spins)
        self._submission = None
        if submission is None:
            submission = Submission(recorded if is_timed else None, enqueued_ns)
        submission.end = recorded
        return CupyEvent(self._pool, self._stream, submission)

    def _copy(
        self, target: int, source: int, size_bytes: int, kind: int, kept: object = None
    ) -> Event:
        submission = self._begun_submission()
        copy = self._runtime.memcpyAsync
        self._device.checked(copy, target, source, size_bytes, kind, self._stream.ptr)
        return CupyEvent(self._pool, self._stream, submission, kept)

    def _begun_submission(self) -> Submission:
        """Return the submission that is open, or open one."""
        submission = self._submission
        if submission is None:
            enqueued_ns = perf_counter_ns()
            begin = self._pool.record(self._stream, is_timed=True) if self.is_timed else None
            submission = self._submission = Submission(begin, enqueued_ns)
        return submission

    def _end_timed_submission(self) -> None:
        """Record the end of one that is open and timed; where refused, the first question does."""
        submission = self._submission
        if submission is not None and submission.begin is not None:
            self._submission = None
            with contextlib.suppress(DriverError):
                submission.end = self._pool.record(self._stream, is_timed=True)


def _launched(kernel: Kernel) -> Launched:
    assert isinstance(kernel, CupyKernel | LibraryKernel | UserKernel)
    return kernel


def _host_address(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class CapturingQueue:
    """A stream whose launches and copies are run, or captured for a CUDA graph; nothing else is."""

    def __init__(self, device: CupyDevice, stream: Any) -> None:
        self.is_timed = self.spins = False
        self._device, self._stream = device, stream
        self.kernels: list[Launched] = []
        """What was launched."""

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        launched = _launched(kernel)
        self.kernels.append(launched)
        self._device.on_device(launched.enqueue, self._stream, global_size, local_size)
        return CapturedEvent()

    def write(self, target: Memory, source: Bytes) -> Event:
        kind = self._device.runtime.memcpyHostToDevice
        return self._copy(address_of(target), _host_address(source), source.nbytes, kind)

    def read(self, target: Bytes, source: Memory) -> Event:
        kind = self._device.runtime.memcpyDeviceToHost
        return self._copy(_host_address(target), address_of(source), target.nbytes, kind)

    def copy(
        self,
        target: Memory,
        source: Memory,
        size_bytes: int,
        target_offset_bytes: int = 0,
        source_offset_bytes: int = 0,
    ) -> Event:
        raise _refusal()

    def replay(self, launch_graph: LaunchGraph) -> Event:
        raise _refusal()

    def wait_for(self, events: Sequence[Event]) -> None:
        raise _refusal()

    def marker(self, events: Sequence[Event], *, is_last: bool = False) -> Event:
        raise _refusal()

    def _copy(self, target: int, source: int, size_bytes: int, kind: int) -> Event:
        copy = self._device.runtime.memcpyAsync
        self._device.checked(copy, target, source, size_bytes, kind, self._stream.ptr)
        return CapturedEvent()


class CapturedEvent:
    """The end of a launch that is captured, and does not run before its graph does."""

    is_over = False
    failure = None

    def wait(self) -> None:
        raise _refusal()

    @property
    def times_ns(self) -> tuple[int, int]:
        raise _refusal()

    @property
    def queued_ns(self) -> int:
        raise _refusal()


def _refusal() -> DriverError:
    return DriverError(
        ErrorKind.OTHER, "a launch graph has launches and copies alone, and no events"
    )
