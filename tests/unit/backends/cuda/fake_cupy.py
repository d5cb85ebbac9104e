"""Stands in for the parts of ``cupy`` that CUDA's driver uses, on the GPUs of ``fake_gpu.py``.

Elapsed times are rounded to float32 milliseconds, as CUDA's are. What needs a current device looks
at that of the thread.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from unit.backends.cuda.fake_gpu import (
    SPOILT,
    FakeCompileError,
    FakeDriverError,
    FakeGpu,
    FakeRuntimeError,
    ManualEvent,
    ManualStream,
)

MEMCPY = {1: "write", 2: "read", 3: "copy"}


class FakeArray:
    """An array of CuPy's in a block of its own, which goes with it."""

    def __init__(self, cupy: FakeCupy, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = int(np.prod(shape)) * self.dtype.itemsize
        self.data = SimpleNamespace(ptr=cupy.cuda.runtime.malloc(max(1, self.nbytes)))
        self.flags = SimpleNamespace(c_contiguous=True)
        self._cupy, self._gpu = cupy, cupy.gpus[cupy.current]

    def __del__(self) -> None:
        block = self._gpu.blocks.pop(self.data.ptr, None)
        if block is not None:
            block[:] = SPOILT


@dataclass(frozen=True)
class FakeUnownedMemory:
    """A block that is somebody else's, seen by CuPy."""

    ptr: int
    size: int
    owner: object
    device_id: int


@dataclass(frozen=True)
class FakeMemoryPointer:
    """An address in a block."""

    mem: Any
    offset: int


class FakeView:
    """An array of CuPy's on memory that is not its own; it is worked on by the current stream."""

    def __init__(self, cupy: FakeCupy, shape: tuple[int, ...], dtype: Any, pointer: Any) -> None:
        self.shape, self.dtype, self._cupy = shape, np.dtype(dtype), cupy
        memory = pointer.mem
        self.nbytes = int(np.prod(shape)) * self.dtype.itemsize
        assert pointer.offset + self.nbytes <= memory.size
        assert cupy.gpus[memory.device_id] is cupy.gpus[cupy.current]
        self._address, self._owner = memory.ptr + pointer.offset, memory.owner

    def look(self, gpu: FakeGpu) -> np.ndarray:
        """See its content as it is now."""
        return gpu.use(self._address, self.nbytes).view(self.dtype).reshape(self.shape)

    def made_of(self, function: Callable[[np.ndarray], np.ndarray]) -> FakeMade:
        """Enqueue what makes another array of it on the thread's current stream."""
        made, stream = FakeMade(self.shape, self.dtype), self._cupy.streams_in_use[-1]
        stream.add("user", lambda: made.content.append(function(self.look(stream.gpu))))
        return made

    def __setitem__(self, index: Any, made: FakeMade) -> None:
        assert index is Ellipsis
        stream = self._cupy.streams_in_use[-1]

        def copy() -> None:
            self.look(stream.gpu)[...] = made.content[0]

        stream.add("user copy", copy)


class FakeMade(FakeView):
    """An array of CuPy's own, whose content comes when the GPU has made it."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.content: list[np.ndarray] = []


class FakeOwner:
    """A user's array, of any library: written on a stream of the user's, exported behind that."""

    def __init__(self, cupy: FakeCupy, content: np.ndarray, is_dense: bool = True) -> None:
        self.array = FakeArray(cupy, content.shape, content.dtype)
        self.array.flags.c_contiguous = is_dense
        self._cupy, self._index = cupy, cupy.current
        self._stream = ManualStream(cupy, non_blocking=True)
        self.fill(content)

    def fill(self, content: np.ndarray) -> None:
        """Enqueue its content."""
        source, target = np.ascontiguousarray(content), self.array.data.ptr
        action = partial(ctypes.memmove, target, source.ctypes.data, source.nbytes)
        self._stream.add("fill", partial(_called, action, source))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._index

    def __dlpack__(self, *, stream: int) -> FakeArray:
        cupy = self._cupy
        assert not cupy.streams_in_use, "the owner's current stream is not seen in a block"
        event = ManualEvent(cupy, block=True)
        event.record(self._stream)
        cupy.named(stream).wait_event(event)
        return self.array


def _called(action: Callable[[], object], _kept: object) -> None:
    action()


class FakePinnedMemory:
    def __init__(self, cupy: FakeCupy, size: int) -> None:
        gpu = cupy.gpus[cupy.current]
        cupy.check(gpu)
        self.array = np.full(size, SPOILT, np.uint8)
        self.ptr = self.array.ctypes.data
        gpu.pinned[self.ptr] = self.array
        self._gpu = gpu

    def __del__(self) -> None:
        self._gpu.pinned.pop(self.ptr, None)


class FakePinnedMemoryPointer:
    """The buffer that numpy makes an array of; it keeps the block alive."""

    def __new__(cls, block: FakePinnedMemory, offset: int) -> Any:
        buffer = (ctypes.c_uint8 * block.array.size).from_buffer(block.array)
        buffer.block = block
        return buffer


def arguments_at(parameters: str, address: int) -> list[np.ndarray]:
    """Read what a kernel of these parameters is given: addresses of values, as the driver does."""
    types = [re.sub(r"\w+$", "", item.strip()).strip() for item in parameters.split(",")]
    places = (ctypes.c_void_p * len(types)).from_address(address)
    return [
        np.frombuffer(ctypes.string_at(place or 0, dtype.itemsize), dtype)[0]
        for place, dtype in zip(places, map(_argument_dtype, types), strict=True)
    ]


def _argument_dtype(kind: str) -> np.dtype:
    words = {"int": np.int32, "uint": np.uint32, "float": np.float32}
    return np.dtype(np.uint64 if kind.endswith("*") else words[kind.removeprefix("const ")])


class FakeKernel:
    def __init__(self, module: FakeModule, name: str) -> None:
        self.module, self.name = module, name
        found = re.search(rf"__kernel\s+void\s+{name}\s*\(([^)]*)\)", module.code)
        if found is None:
            raise FakeDriverError(500)
        self.parameters = found[1]

    def launch(
        self, stream: ManualStream, grid: tuple[int, ...], block: tuple[int, ...], address: int
    ) -> None:
        cupy = self.module.cupy
        cupy.must_be_current(stream.gpu)
        if self.name not in cupy.loaded:
            cupy.refuse_in_capture()
            cupy.loaded.add(self.name)
        action = self.action(stream.gpu, grid, block, arguments_at(self.parameters, address))

        def run() -> None:
            assert self.module.is_loaded, "the code of a kernel is gone"
            action()

        stream.add("launch", run)

    def action(
        self, gpu: FakeGpu, grid: tuple[int, ...], block: tuple[int, ...], given: list[Any]
    ) -> Callable[[], None]:
        function = self.module.cupy.functions[self.name.rsplit("_", 1)[0]]
        return lambda: function(gpu, grid, block, *given)


class FakeModule:
    """Code on the device that is the thread's current one."""

    def __init__(self, cupy: FakeCupy, code: str) -> None:
        self.cupy, self.code, self.index = cupy, code, cupy.current
        self.is_loaded = True

    def function(self, name: str) -> FakeKernel:
        return FakeKernel(self, name)


class FakeCupy:
    """The module; ``functions`` compute kernels, by label: (gpu, grid, block, *arguments)."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus or (FakeGpu(),)
        self.functions: dict[str, Callable[..., None]] = {}
        self.loaded: set[str] = set()
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        """Texts and options that the compiler got."""
        self.modules: list[FakeModule] = []
        """What is loaded."""
        self.may_spin = False
        """Whether a thread may wait for an event that does not block."""
        self.events: list[ManualEvent] = []
        self.capturing: list[ManualStream] = []
        self.streams_in_use: list[ManualStream] = []
        """Those of the blocks that the thread is in."""
        self.calls: list[str] = []
        """What was enqueued, in order."""
        self.refuses: dict[int, int] = {}
        """By number, from 1 on, the calls that enqueue which are refused, with their error."""
        self.start_error = 0
        """What the first question of the runtime fails with."""
        self.driver_version, self.runtime_version = 13000, 13020
        self.nvrtc_error: Exception | None = None
        self._threads = threading.local()
        self._named: list[Any] = []
        self.cuda = SimpleNamespace(
            runtime=self._runtime(),
            driver=SimpleNamespace(
                CUDADriverError=FakeDriverError,
                moduleLoadData=self._load,
                moduleGetFunction=self._function,
                moduleUnload=self._unload,
                launchKernel=self._launch,
            ),
            nvrtc=SimpleNamespace(
                NVRTCError=FakeCompileError,
                getVersion=self._nvrtc_version,
                getSupportedArchs=lambda: (80, 90),
                createProgram=lambda source, name, headers, names: self.name(source),
                compileProgram=self._compile,
                getCUBIN=lambda program: self.named(program).encode(),
                getProgramLog=lambda program: (
                    'kern.cu(1): error: identifier "missing" is undefined'
                ),
                destroyProgram=lambda program: None,
            ),
            Stream=lambda **named: ManualStream(self, **named),
            Event=lambda **named: ManualEvent(self, **named),
            PinnedMemory=lambda size: FakePinnedMemory(self, size),
            PinnedMemoryPointer=FakePinnedMemoryPointer,
            UnownedMemory=FakeUnownedMemory,
            MemoryPointer=FakeMemoryPointer,
            get_elapsed_time=self._elapsed_ms,
        )

    def module(self, code: str) -> FakeModule:
        """Make what is loaded of compiled code."""
        return FakeModule(self, code)

    def _compile(self, program: int, options: tuple[str, ...]) -> None:
        self.compiled.append((self.named(program), options))
        if "missing" in self.named(program):
            raise FakeCompileError("NVRTC_ERROR_COMPILATION")

    def _load(self, code: bytes) -> int:
        self.refuse_in_capture()
        self.must_have_context()
        if code not in (text.encode() for text, _ in self.compiled):
            raise FakeDriverError(200)
        self.modules.append(self.module(code.decode()))
        return self.name(self.modules[-1])

    def _function(self, module: int, name: str) -> int:
        self.must_have_context()
        return self.name(self.named(module).function(name))

    def _unload(self, handle: int) -> None:
        self.must_have_context()
        module = self.named(handle)
        self.must_be_current(self.gpus[module.index])
        self.check(self.gpus[module.index])
        self.modules.remove(module)
        module.is_loaded = False

    def _launch(self, function: int, *given: int) -> None:
        sizes, (shared, stream, address, extra) = given[:6], given[6:]
        assert (shared, extra) == (0, 0)
        self.named(function).launch(self.named(stream), sizes[:3], sizes[3:], address)

    def from_dlpack(self, exported: Any) -> FakeArray:
        kind, index = exported.__dlpack_device__()
        assert (kind, self.gpus[index]) == (2, self.gpus[self.current])
        array = exported.__dlpack__(stream=0, max_version=(1, 1))
        assert isinstance(array, FakeArray)
        return array

    def ndarray(self, shape: tuple[int, ...], dtype: Any, pointer: Any) -> FakeView:
        return FakeView(self, shape, dtype, pointer)

    def ascontiguousarray(self, array: FakeArray) -> FakeArray:
        """Make a dense copy on the thread's current stream."""
        made = FakeArray(self, array.shape, array.dtype)
        stream = self.streams_in_use[-1]
        source, target = array.data.ptr, made.data.ptr
        stream.add("dense copy", lambda: ctypes.memmove(target, source, made.nbytes))
        return made

    @property
    def current(self) -> int:
        """The current device of the thread."""
        return getattr(self._threads, "current", 0)

    def must_have_context(self) -> None:
        """Refuse a function of the driver on a thread that has only the number of a device."""
        if not getattr(self._threads, "has_context", False):
            raise FakeDriverError(201)

    def must_be_current(self, gpu: FakeGpu) -> None:
        if self.gpus[self.current] is not gpu:
            raise FakeDriverError(400)

    def name(self, thing: Any) -> int:
        """Give a handle."""
        self._named.append(thing)
        return len(self._named)

    def named(self, handle: int) -> Any:
        """Find what has a handle."""
        return self._named[handle - 1]

    def call(self, label: str) -> None:
        self.calls.append(label)
        status = self.refuses.get(len(self.calls))
        if status is not None:
            raise FakeRuntimeError(status)

    def check(self, gpu: FakeGpu) -> None:
        if gpu.status:
            raise FakeRuntimeError(gpu.status)

    def refuse_in_capture(self) -> None:
        """Refuse what no capture allows, and spoil those that there are."""
        for stream in self.capturing:
            stream.is_valid = False
        if self.capturing:
            raise FakeRuntimeError(900)

    def _runtime(self) -> Any:
        return SimpleNamespace(
            CUDARuntimeError=FakeRuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            getDevice=lambda: self.current,
            setDevice=self._set_device,
            getDeviceCount=self._count,
            getDeviceProperties=self._properties,
            driverGetVersion=lambda: self.driver_version,
            runtimeGetVersion=lambda: self.runtime_version,
            malloc=self._malloc,
            free=self._free,
            memcpyAsync=self._copy,
            eventQuery=lambda handle: self._named[handle - 1].status,
        )

    def _set_device(self, index: int) -> None:
        self._threads.current, self._threads.has_context = index, True

    def _count(self) -> int:
        if self.start_error:
            raise FakeRuntimeError(self.start_error)
        return len(self.gpus)

    def _properties(self, index: int) -> dict[str, Any]:
        self.check(self.gpus[index])
        return {
            "name": b"Fake GPU ",
            "integrated": 0,
            "totalGlobalMem": self.gpus[index].memory_bytes,
            "sharedMemPerBlock": 49152,
            "maxThreadsPerBlock": 1024,
            "major": 9,
            "minor": 0,
        }

    def _nvrtc_version(self) -> tuple[int, int]:
        if self.nvrtc_error is not None:
            raise self.nvrtc_error
        return 13, 0

    def _malloc(self, size: int) -> int:
        self.refuse_in_capture()
        gpu = self.gpus[self.current]
        self.check(gpu)
        if sum(block.size for block in gpu.blocks.values()) + size > gpu.memory_bytes:
            raise FakeRuntimeError(2)
        block = np.full(size, SPOILT, np.uint8)
        gpu.blocks[block.ctypes.data] = block
        return int(block.ctypes.data)

    def _free(self, address: int) -> None:
        gpu = self.gpus[self.current]
        self.check(gpu)
        gpu.blocks.pop(address)[:] = SPOILT

    def _copy(self, target: int, source: int, size: int, kind: int, handle: int) -> None:
        stream = self._named[handle - 1]

        def copy() -> None:
            for address in {1: [target], 2: [source], 3: [target, source]}[kind]:
                stream.gpu.use(address, size)
            ctypes.memmove(target, source, size)

        stream.add(MEMCPY[kind], copy)

    def _elapsed_ms(self, start: ManualEvent, end: ManualEvent) -> float:
        times = []
        for event in (start, end):
            assert event.has_time, "it was made without a time"
            if event.status or event.latest is None:
                raise FakeRuntimeError(event.status or 400)
            times.append(event.latest.time_ns)
        return float(np.float32((times[1] - times[0]) / 1e6))
