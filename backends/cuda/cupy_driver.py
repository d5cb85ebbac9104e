"""The driver as CuPy has it: devices, memory, streams, programs and CUDA graphs of NVIDIA's GPUs.

With its neighbours ``cupy_*.py`` and with ``libraries``, this is all that touches CuPy, which is
imported by the first driver. The context of a GPU is CUDA's primary one, which every library of the
process shares: their errors are ours, and ours theirs. Memory is taken from CUDA itself and goes
back there; streams are non-blocking, so that nothing waits for the legacy stream of others; kernels
are compiled by NVRTC, and unloaded with the last plan of them.

A launch graph is a CUDA graph. Its launches are run first, because CUDA loads code by its first
launch, and libraries make handles then, neither of which may happen in a capture. Captures are
relaxed, one at a time, and with Python's garbage collector stopped: what a finaliser frees, and
what other threads allocate meanwhile, is no business of the capture.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import DeviceError
from ...executors.late_imports import late_imports
from ..accelerator.queues.driver import (
    AdoptedArray,
    Context,
    DeviceFacts,
    DriverError,
    ErrorKind,
    HostMemory,
    Kernel,
    LaunchGraph,
    Memory,
    Program,
    Queue,
)
from ..accelerator.queues.first_use import FirstUse
from ..accelerator.queues.library_operation import LibraryOperation
from ..accelerator.queues.user_operation import UserOperation
from .cupy_array import Arrivals, exported
from .cupy_device import CupyDevice
from .cupy_event import EventPool
from .cupy_facts import count_devices, facts_of, refuse_without_driver
from .cupy_memory import CupyHostMemory, CupyMemory
from .cupy_program import CupyPrograms
from .cupy_queue import CapturingQueue, CupyLaunchGraph, CupyQueue, LibraryKernel
from .cupy_user_kernel import UserProgram
from .libraries import find_libraries, plan_operation
from .libraries.library_errors import warnings_are_no_errors
from .libraries.planned import Planned

__all__ = ["CupyDriver"]

_INSTALL = "pip install 'aioinfer[cuda]'"
_first_use = FirstUse("CUDA")
_capturing = threading.Lock()


def _import_cupy() -> Any:
    try:
        with warnings_are_no_errors(), late_imports:
            return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError(
            f"CuPy cannot be imported ({error}); install it with {_INSTALL!r}",
            install=_INSTALL,
        ) from error


class CupyDriver:
    """The GPUs that CUDA shows to this process.

    ``cupy`` is the module, and ``find_libraries`` names those that work, unless a test gives them.
    """

    def __init__(
        self,
        cupy: Any = None,
        find_libraries: Callable[[], frozenset[str]] = find_libraries,
    ) -> None:
        if cupy is None:
            refuse_without_driver()
        self._cupy = _import_cupy() if cupy is None else cupy
        self._find_libraries = find_libraries

    def find_devices(self) -> list[DeviceFacts]:
        _first_use.note()
        count = count_devices(self._cupy)
        libraries = self._find_libraries()
        return [facts_of(self._cupy, index, libraries) for index in range(count)]

    def open(self, facts: DeviceFacts) -> Context:
        _first_use.note()
        return _Context(CupyDevice(self._cupy, facts.index), facts)


class _LibraryProgram:
    """A plan of a library, in the place of a program."""

    __slots__ = ("_plan",)

    def __init__(self, plan: Planned) -> None:
        self._plan = plan

    def kernel(self, name: str) -> Kernel:
        return LibraryKernel(self._plan)


class _Context:
    def __init__(self, device: CupyDevice, facts: DeviceFacts) -> None:
        self.facts = facts
        self._device, self._pool = device, EventPool(device)
        assert facts.compute_capability is not None
        self._programs = CupyPrograms(device, facts.compute_capability)
        self._stream = device.on_device(device.cuda.Stream, non_blocking=True)
        self._arrivals = Arrivals(device, self._pool)

    def queue(self, name: str) -> Queue:
        return CupyQueue(self._device, self._pool, name)

    def buffer(self, size_bytes: int) -> Memory:
        return CupyMemory.allocated(self._device, size_bytes)

    def host_memory(self, size_bytes: int) -> HostMemory:
        return CupyHostMemory(self._device, size_bytes)

    def adopt(self, given: Any) -> AdoptedArray | None:
        return self._arrivals.adopt(given)

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        return self._device.on_device(exported, self._device, array, options)

    def program(self, source: str) -> Program:
        return self._programs.program(source)

    def library_program(self, operation: LibraryOperation) -> Program:
        if isinstance(operation, UserOperation):
            return UserProgram(self._device, operation)
        return _LibraryProgram(self._device.on_device(plan_operation, operation, self.facts.index))

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        with _capturing:
            return self._device.on_device(self._capture_once, enqueue)

    def close(self) -> None:
        try:
            self._device.on_device(self._stream.synchronize)
        except DriverError as error:
            if error.kind is not ErrorKind.LOST:
                raise
        finally:
            self._programs.close()
            self._pool.close()

    def _capture_once(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        try:
            enqueue(CapturingQueue(self._device, self._stream))
        finally:
            self._stream.synchronize()  # what came before a refusal uses the slot's memory, too
        queue = CapturingQueue(self._device, self._stream)
        graph = self._captured(lambda: enqueue(queue))
        graph.upload(self._stream)
        self._stream.synchronize()  # replays on other streams are not ordered behind it
        return CupyLaunchGraph(graph, queue.kernels)

    def _captured(self, enqueue: Callable[[], None]) -> Any:
        with _no_collection():
            self._stream.begin_capture()
            try:
                enqueue()
            except BaseException:
                with contextlib.suppress(DriverError):  # an invalid capture has to be ended, too
                    self._device.checked(self._stream.end_capture)
                raise
            return self._stream.end_capture()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
