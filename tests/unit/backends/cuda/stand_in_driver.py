"""A driver like CUDA's on a machine without a GPU: kernels run on PoCL, libraries are numpy.

It says of the first OpenCL device that it is discrete, has cuDNN and cuBLASLt, and can capture. A
library's operation is computed when it is launched, on the launching thread, once the queue has
come to it: what it reads was enqueued before, so the numbers are those of a device. Its workspace
is spoilt, so that a plan that has anything else there gives wrong results. A launch graph is
launched again, command by command, with the arguments that the kernels had.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aioinfer.backends.accelerator.queues.driver import (
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
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.accelerator.queues.user_operation import UserOperation
from quick_builds import QuickDriver
from unit.backends.cuda.library_stand_ins import STAND_INS, StandIn

__all__ = ["LIBRARIES", "StandInDriver"]

LIBRARIES = frozenset({"cudnn", "cublaslt"})
os.environ["POCL_WORK_GROUP_METHOD"] = "loops"
"""PoCL 3 reads it with each kernel. Its default vectorises over work-items, and gets pools of
bfloat16 in words wrong on processors of Intel's with AMX: LLVM 14 does, and the kernels are right.
"""

_SPOILT = 0xFF  # NaN in all float types
_SPOILT_BYTES = 4096


class StandInDriver:
    """The first device of OPENCL, as if it were CUDA's; ``libraries`` are those that it has."""

    def __init__(self, libraries: frozenset[str] = LIBRARIES) -> None:
        self._driver, self._libraries = QuickDriver(), libraries
        self.operations: list[LibraryOperation] = []
        """All that were built, in order."""

    def find_devices(self) -> list[DeviceFacts]:
        found = self._driver.find_devices()[0]
        return [
            replace(
                found,
                kind="discrete",
                libraries=self._libraries,
                can_capture=True,
                has_float16=True,
                moves_words=True,
                compute_capability=(9, 0),
            )
        ]

    def open(self, facts: DeviceFacts) -> Context:
        return _Context(self._driver.open(facts), facts, self.operations)


class _LibraryKernel:
    """An operation with its arguments in memory."""

    def __init__(self, operation: LibraryOperation, stand_in: StandIn) -> None:
        self._operation, self._compute = operation, stand_in.compute
        self._sizes = list(stand_in.sizes(operation))
        self._arguments: list[Memory] = []

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        given = [item for item in arguments if not isinstance(item, int | float)]
        lengths = [item.size_bytes for item in given]
        if len(given) < len(arguments) or len(given) != len(self._sizes):
            raise self._refusal(f"takes {len(self._sizes)} addresses, and got {len(arguments)}")
        if any(have < want for have, want in zip(lengths, self._sizes, strict=True)):
            raise self._refusal(f"needs {self._sizes} bytes, and got {lengths}")
        self._arguments = given

    def launch_on(self, queue: Queue) -> Event:
        """Wait for what is in the queue, compute, and enqueue the result."""
        arrays = [np.empty(size, np.uint8) for size in self._sizes[:-1]]
        for array, memory in zip(arrays, self._arguments, strict=False):
            if array.size:
                queue.read(array, memory).wait()
        made = self._compute(self._operation, arrays)
        self._spoil_workspace(queue)
        data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
        if data.size != self._sizes[-2]:
            raise self._refusal(f"made {data.size} bytes of {self._sizes[-2]}")
        event = queue.write(self._arguments[-2], data)
        event.wait()
        return event

    def frozen(self) -> _LibraryKernel:
        """Copy it, with the arguments that it has."""
        copied = object.__new__(_LibraryKernel)
        copied.__dict__.update(self.__dict__)
        return copied

    def _spoil_workspace(self, queue: Queue) -> None:
        size, workspace = self._sizes[-1], self._arguments[-1]
        if size:
            waste = np.full(min(size, _SPOILT_BYTES), _SPOILT, np.uint8)
            queue.write(workspace, waste).wait()

    def _refusal(self, reason: str) -> DriverError:
        return DriverError(ErrorKind.OTHER, f"{self._operation.name} {reason}")


class _UserKernel(_LibraryKernel):
    """A user's function on numpy's arrays: what CuPy's are, as far as numpy has it."""

    def __init__(self, operation: UserOperation) -> None:
        self._user, self._arguments = operation, []

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        given = [item for item in arguments if not isinstance(item, int | float)]
        for item, form in zip(given, self._user.forms, strict=True):
            assert item.size_bytes >= form.example.nbytes
        self._arguments = given

    def launch_on(self, queue: Queue) -> Event:
        arrays = [np.empty(form.shape, form.dtype) for form in self._user.forms]
        count = len(arrays) - len(self._user.outputs)
        for array, memory in zip(arrays[:count], self._arguments, strict=False):
            if array.size:
                queue.read(_bytes_of(array), memory).wait()
        self._user.call(arrays)
        event = queue.marker([])
        for array, memory in zip(arrays[count:], self._arguments[count:], strict=True):
            if array.size:
                event = queue.write(memory, _bytes_of(array))
                event.wait()
        return event

    def frozen(self) -> _LibraryKernel:
        raise AssertionError("a function of a user is not captured")


def _bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


class _UserProgram:
    def __init__(self, operation: UserOperation) -> None:
        self._operation = operation

    def kernel(self, name: str) -> Kernel:
        assert name == self._operation.name
        return _UserKernel(self._operation)


class _LibraryProgram:
    def __init__(self, operation: LibraryOperation, stand_in: StandIn) -> None:
        self._operation, self._stand_in = operation, stand_in
        stand_in.sizes(operation)  # what it refuses, the library has no plan for

    def kernel(self, name: str) -> Kernel:
        assert name == self._operation.name
        return _LibraryKernel(self._operation, self._stand_in)


class _Queue:
    """A queue of OpenCL that takes operations of libraries, too."""

    def __init__(self, inner: Queue) -> None:
        self._inner, self.is_timed, self.spins = inner, inner.is_timed, inner.spins
        self.write, self.read = inner.write, inner.read
        self.copy, self.wait_for, self.marker = inner.copy, inner.wait_for, inner.marker

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        if isinstance(kernel, _LibraryKernel):
            return kernel.launch_on(self._inner)
        return self._inner.launch(kernel, global_size, local_size)

    def replay(self, launch_graph: LaunchGraph) -> Event:
        assert isinstance(launch_graph, _LaunchGraph)
        return launch_graph.launch_on(self)


class _NoEvent:
    """The event of a launch that is only noted."""

    is_over, failure, times_ns, queued_ns = False, None, (0, 0), 0

    def wait(self) -> None:
        raise AssertionError("nobody waits for what is captured")


class _LaunchGraph:
    """A queue that notes launches, and then what it has noted."""

    def __init__(self) -> None:
        self.is_timed = self.spins = False
        self._commands: list[Callable[[Queue], Event]] = []
        self._events: list[Event] = []
        """Of the last replay; an unfinished copy event is not to be dropped."""

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        noted = kernel.frozen() if isinstance(kernel, _LibraryKernel) else kernel
        sizes = tuple(global_size), tuple(local_size)
        return self._note(lambda queue: queue.launch(noted, *sizes))

    def launch_on(self, queue: Queue) -> Event:
        """Enqueue all of it anew, once it is over."""
        self._events = [enqueue(queue) for enqueue in self._commands]
        return self._events[-1]

    def write(self, target: Memory, source: Bytes) -> Event:
        return self._note(lambda queue: queue.write(target, source))

    def read(self, target: Bytes, source: Memory) -> Event:
        return self._note(lambda queue: queue.read(target, source))

    def _note(self, enqueue: Callable[[Queue], Event]) -> Event:
        self._commands.append(enqueue)
        return _NoEvent()

    def copy(
        self, target: Memory, source: Memory, size_bytes: int, target_offset_bytes: int = 0
    ) -> Event:
        raise _not_recorded()

    def replay(self, launch_graph: LaunchGraph) -> Event:
        raise _not_recorded()

    def wait_for(self, events: Sequence[Event]) -> None:
        raise _not_recorded()

    def marker(self, events: Sequence[Event], *, is_last: bool = False) -> Event:
        raise _not_recorded()


def _not_recorded() -> DriverError:
    return DriverError(ErrorKind.OTHER, "only launches and copies are captured")


class _Context:
    def __init__(
        self, inner: Context, facts: DeviceFacts, operations: list[LibraryOperation]
    ) -> None:
        self.facts, self._inner, self._operations = facts, inner, operations

    def queue(self, name: str) -> Queue:
        return _Queue(self._inner.queue(name))

    def buffer(self, size_bytes: int) -> Memory:
        return self._inner.buffer(size_bytes)

    def host_memory(self, size_bytes: int) -> HostMemory:
        return self._inner.host_memory(size_bytes)

    def adopt(self, given: Any) -> AdoptedArray | None:
        return self._inner.adopt(given)

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        return self._inner.export(array, options)

    def program(self, source: str) -> Program:
        return self._inner.program(source)

    def library_program(self, operation: LibraryOperation) -> Program:
        if isinstance(operation, UserOperation):
            return _UserProgram(operation)
        found = STAND_INS.get((operation.library, operation.label))
        if found is None or operation.library not in self.facts.libraries:
            reason = f"there is no {operation.label!r} of {operation.library!r} here"
            raise DriverError(ErrorKind.OTHER, reason)
        self._operations.append(operation)
        return _LibraryProgram(operation, found)

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        made = _LaunchGraph()
        enqueue(made)
        return made

    def close(self) -> None:
        self._inner.close()
