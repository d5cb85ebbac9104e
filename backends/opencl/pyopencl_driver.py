"""The driver as pyopencl has it; the one file here that imports pyopencl."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...errors import DeviceError
from ...executors.late_imports import late_imports
from ..accelerator.queues.driver import (
    AdoptedArray,
    Argument,
    Bytes,
    Context,
    DeviceFacts,
    DriverError,
    ErrorKind,
    Event,
    HostMemory,
    Kernel,
    LaunchGraph,
    Memory,
    Program,
    Queue,
)
from ..accelerator.queues.first_use import FirstUse
from ..accelerator.queues.library_operation import LibraryOperation
from .pyopencl_event import PyOpenClEvent, as_driver_error

__all__ = ["PyOpenClDriver"]

T = TypeVar("T")

_HEADER = """
#define DEVICE_FUNCTION static
#define bits_of_float as_uint
#define float_of_bits as_float
"""
_BUILD_OPTIONS = ("-w", "-cl-mad-enable", "-cl-std=CL1.2")
_WAY_OUT = (
    "install one with 'pip install aioinfer[opencl]', which brings PoCL for CPUs, or install the "
    "OpenCL driver of your device"
)
_NEWER = (
    "install a newer driver, such as the system's PoCL (Debian: pocl-opencl-icd) or Intel's for "
    "CPUs (pip: intel-opencl-rt)"
)
_DLPACK_OPENCL = 4
_first_use = FirstUse("OpenCL")


def _library() -> Any:
    try:
        with late_imports:
            return importlib.import_module("pyopencl")
    except ImportError as error:
        raise DeviceError(
            f"pyopencl cannot be imported ({error}); {_WAY_OUT.replace('one', 'it', 1)}"
        ) from error


def _checked(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call the library; its errors become DriverError."""
    try:
        return call(*arguments, **named)
    except _library().Error as error:
        raise as_driver_error(error) from error


class PyOpenClDriver:
    """Devices of all installed OpenCL platforms, in the loader's order."""

    def __init__(self) -> None:
        self._cl = _library()
        self._devices: list[Any] = []

    def find_devices(self) -> list[DeviceFacts]:
        _first_use.note()
        cl = self._cl
        try:
            platforms = cl.get_platforms()
        except cl.Error as error:
            raise DeviceError(f"no OpenCL driver is installed ({error}); {_WAY_OUT}") from error
        found = [device for platform in platforms for device in _devices_of(cl, platform)]
        refusals = {device: _refusal(cl, device) for device in found}
        self._devices = [device for device in found if refusals[device] is None]
        if not self._devices:
            names = ", ".join(platform.name.strip() for platform in platforms) or "none"
            why = "".join(f"; {device.name.strip()}: {refusals[device]}" for device in found)
            way_out = _NEWER if found else _WAY_OUT
            raise DeviceError(
                f"no OpenCL platform has a device that works (platforms: {names}{why}); {way_out}"
            )
        return [_facts(cl, index, device) for index, device in enumerate(self._devices)]

    def open(self, facts: DeviceFacts) -> Context:
        _first_use.note()
        return _Context(self._cl, self._devices[facts.index], facts)


def _devices_of(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform without a device says so by an error
        return []


def _refusal(cl: Any, device: Any) -> str | None:
    """Return why a processor's driver cannot compile; other devices are asked when opened.

    A driver that brings a compiler of its own, as PoCL does, may not know a newer processor.
    """
    if not device.type & cl.device_type.CPU:
        return None
    try:
        cl.Program(cl.Context([device]), "__kernel void probe() {}").build(["-w"])
    except cl.Error as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        return f"it cannot compile ({' '.join(lines) or error})"
    return None


def _facts(cl: Any, index: int, device: Any) -> DeviceFacts:
    is_processor = bool(device.type & cl.device_type.CPU)
    return DeviceFacts(
        index=index,
        name=device.name.strip(),
        platform=device.platform.name.strip(),
        platform_version=device.platform.version.strip(),
        driver_version=device.driver_version.strip(),
        kind="cpu" if is_processor else "integrated" if device.host_unified_memory else "discrete",
        memory_bytes=int(device.global_mem_size),
        largest_buffer_bytes=int(device.max_mem_alloc_size),
        align_bytes=max(64, int(device.mem_base_addr_align) // 8),
        work_group_size=int(device.max_work_group_size),
        has_float16="cl_khr_fp16" in device.extensions.split(),
        moves_words=not is_processor,
        dlpack_kind=_DLPACK_OPENCL,
    )


class _Memory:
    __slots__ = ("raw", "size_bytes")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.size_bytes = int(raw.size)

    def part(self, offset_bytes: int, size_bytes: int) -> Memory:
        return _Memory(_checked(self.raw.get_sub_region, offset_bytes, max(1, size_bytes)))

    def release(self) -> None:
        _checked(self.raw.release)


class _HostMemory:
    """A buffer that the driver allocated on the host, mapped for as long as it lives."""

    __slots__ = ("_buffer", "_queue", "array")

    def __init__(self, cl: Any, context: Any, queue: Any, size_bytes: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._queue = queue
        self._buffer = _checked(cl.Buffer, context, flags, size_bytes)
        maps = cl.map_flags.READ | cl.map_flags.WRITE
        self.array: Bytes
        self.array, _ = _checked(
            cl.enqueue_map_buffer, queue, self._buffer, maps, 0, (size_bytes,), np.uint8
        )

    def release(self) -> None:
        mapping = self.array.base
        self.array = np.empty(0, np.uint8)
        _checked(mapping.release, self._queue).wait()  # type: ignore[union-attr]
        _checked(self._buffer.release)


class _Kernel:
    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        _checked(self.raw.set_args, *map(_raw_argument, arguments))


def _raw_argument(argument: Argument) -> Any:
    if isinstance(argument, int):
        return np.int32(argument)
    if isinstance(argument, float):
        return np.float32(argument)
    assert isinstance(argument, _Memory)
    return argument.raw


class _Program:
    __slots__ = ("_cl", "_raw")

    def __init__(self, cl: Any, raw: Any) -> None:
        self._cl, self._raw = cl, raw

    def kernel(self, name: str) -> Kernel:
        return _Kernel(_checked(self._cl.Kernel, self._raw, name))


class _Queue:
    def __init__(self, cl: Any, context: Any) -> None:
        self._cl = cl
        self.is_timed, self.spins = True, False
        properties = cl.command_queue_properties.PROFILING_ENABLE
        self._raw = _checked(cl.CommandQueue, context, properties=properties)

    def write(self, target: Memory, source: Bytes) -> Event:
        return self._copy(_raw_memory(target), source)

    def read(self, target: Bytes, source: Memory) -> Event:
        return self._copy(target, _raw_memory(source))

    def _copy(self, target: Any, source: Any) -> Event:
        copy = self._cl.enqueue_copy
        return PyOpenClEvent(self._cl, _checked(copy, self._raw, target, source, is_blocking=False))

    def copy(
        self,
        target: Memory,
        source: Memory,
        size_bytes: int,
        target_offset_bytes: int = 0,
        source_offset_bytes: int = 0,
    ) -> Event:
        offsets = {"src_offset": source_offset_bytes, "dst_offset": target_offset_bytes}
        raw = _raw_memory(target), _raw_memory(source)
        copied = _checked(self._cl.enqueue_copy, self._raw, *raw, byte_count=size_bytes, **offsets)
        return PyOpenClEvent(self._cl, copied)

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        assert isinstance(kernel, _Kernel)
        enqueue = self._cl.enqueue_nd_range_kernel
        sizes = tuple(global_size), tuple(local_size)
        return PyOpenClEvent(self._cl, _checked(enqueue, self._raw, kernel.raw, *sizes))

    def replay(self, launch_graph: LaunchGraph) -> Event:
        raise _nothing_captured()

    def wait_for(self, events: Sequence[Event]) -> None:
        _checked(self._cl.enqueue_barrier, self._raw, wait_for=_raw_events(events))

    def marker(self, events: Sequence[Event], *, is_last: bool = False) -> Event:
        # An empty list means all that came before; in an in-order queue a list does, too.
        enqueue = self._cl.enqueue_marker
        try:
            marker = _checked(enqueue, self._raw, wait_for=_raw_events(events) or None)
        finally:
            _checked(self._raw.flush)
        return PyOpenClEvent(self._cl, marker)


def _nothing_captured() -> DriverError:
    return DriverError(ErrorKind.OTHER, "this driver captures no launches")


def _nothing_adopted() -> DriverError:
    return DriverError(ErrorKind.OTHER, "this driver takes arrays of the host only")


def _raw_memory(memory: Memory) -> Any:
    assert isinstance(memory, _Memory)
    return memory.raw


def _raw_events(events: Sequence[Event]) -> list[Any]:
    return [event.raw for event in events if isinstance(event, PyOpenClEvent)]


class _Context:
    def __init__(self, cl: Any, device: Any, facts: DeviceFacts) -> None:
        self.facts = facts
        self._cl = cl
        self._raw = _checked(cl.Context, [device])
        self._mapping_queue = _checked(cl.CommandQueue, self._raw)

    def queue(self, name: str) -> Queue:
        return _Queue(self._cl, self._raw)

    def buffer(self, size_bytes: int) -> Memory:
        flags = self._cl.mem_flags.READ_WRITE
        return _Memory(_checked(self._cl.Buffer, self._raw, flags, max(1, size_bytes)))

    def host_memory(self, size_bytes: int) -> HostMemory:
        return _HostMemory(self._cl, self._raw, self._mapping_queue, max(1, size_bytes))

    def adopt(self, given: Any) -> AdoptedArray | None:
        raise _nothing_adopted()

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        return None

    def program(self, source: str) -> Program:
        program = self._cl.Program(self._raw, _HEADER + source)
        return _Program(self._cl, _checked(program.build, options=list(_BUILD_OPTIONS)))

    def library_program(self, operation: LibraryOperation) -> Program:
        raise DriverError(ErrorKind.OTHER, f"OpenCL has no library {operation.library!r}")

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        raise _nothing_captured()

    def close(self) -> None:
        _checked(self._mapping_queue.finish)
