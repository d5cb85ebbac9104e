"""What an accelerator asks of a driver: devices, memory, in-order queues, programs and events.

Everything here is a contract; a backend's driver keeps it with the real thing, and a test's fake
may stand in for it. Nothing waits but ``Event.wait`` and ``Context.program``. The caller that
enqueues a copy keeps its event, the memory and the host array until the event is over: to drop an
unfinished copy event may block, in pyopencl even with the GIL held. A kernel object holds its
arguments, so each launch of each slot has one of its own.

Any method may raise DriverError.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from .library_operation import LibraryOperation

__all__ = [
    "AdoptedArray",
    "Argument",
    "Context",
    "DeviceFacts",
    "Driver",
    "DriverError",
    "ErrorKind",
    "Event",
    "HostMemory",
    "Kernel",
    "LaunchGraph",
    "Memory",
    "Program",
    "Queue",
]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class ErrorKind(enum.Enum):
    """What an error means for the device, whatever number the driver has for it."""

    LOST = "the device cannot be used any more"
    OUT_OF_RESOURCES = "a dead device says so, and one that is short of something for a moment"
    OUT_OF_MEMORY = "there is no room"
    WAITED_FOR_FAILURE = "a command waited for one that failed"
    OTHER = "anything else"


class DriverError(Exception):
    """A call that the driver refused, or a command that failed; ``text`` is the driver's."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says of itself; ``index`` is its place in ``Driver.find_devices``."""

    index: int
    name: str
    platform: str
    platform_version: str
    """Tells platforms of one name apart."""
    driver_version: str
    kind: Literal["cpu", "integrated", "discrete"]
    """The host's processor, or another that shares the host's memory, or has its own."""
    memory_bytes: int
    largest_buffer_bytes: int
    align_bytes: int
    """A part of a buffer starts at a multiple of this."""
    work_group_size: int
    """The most work-items of one group."""
    has_float16: bool
    """True if it computes in float16; every device loads and stores it."""
    moves_words: bool = False
    """True if a work-item should move several elements at once, False if its compiler joins those
    of neighbours."""
    compute_capability: tuple[int, int] | None = None
    """NVIDIA's number of what a GPU can do, such as (9, 0); None for devices without one."""
    libraries: frozenset[str] = frozenset()
    """The vendor's libraries whose operations its driver can build."""
    can_capture: bool = False
    """True if launches can be captured, to be replayed as one command."""
    can_adopt: bool = False
    """True if arrays of other libraries in its memory can be read and written as they are."""
    dlpack_kind: int = 12
    """DLPack's number of the kind of its memory; 12 is one that DLPack does not know."""
    can_lend_host_memory: bool = False
    """True if its memory for copies lives as long as any array that sees it."""
    are_times_free: bool = True
    """False if a queue whose events know their times costs the host more than one without."""

    @property
    def platform_text(self) -> str:
        """The platform's name and version, for messages."""
        return f"{self.platform!r} ({self.platform_version})"

    def is_on(self, platform: str) -> bool:
        """True if this is a part of its platform's name or version, whatever the case."""
        return any(
            platform.lower() in text.lower() for text in (self.platform, self.platform_version)
        )


class Event(Protocol):
    """The end of an enqueued command."""

    def wait(self) -> None:
        """Block until the command has ended, without the GIL; raises DriverError if it failed.

        The kind is WAITED_FOR_FAILURE, whatever the command failed with; ``failure`` knows that.
        """

    @property
    def is_over(self) -> bool:
        """True if it has ended or failed; asks the driver, does not block."""

    @property
    def failure(self) -> DriverError | None:
        """What it failed with, by its execution status, or None; asks the driver, does not block.

        A command that waited for one that failed has failed with WAITED_FOR_FAILURE.
        """

    @property
    def times_ns(self) -> tuple[int, int]:
        """When the device began and ended it, by the device's clock; only once it is over."""

    @property
    def queued_ns(self) -> int:
        """When the host enqueued it, by the device's clock; only once it is over."""


class Memory(Protocol):
    """A buffer on the device, or a part of one."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""

    def part(self, offset_bytes: int, size_bytes: int) -> Memory:
        """See a piece of it as a buffer of its own; the offset is a multiple of ``align_bytes``."""

    def release(self) -> None:
        """Give it back, when no command uses it any more."""


@dataclass(frozen=True, eq=False)
class AdoptedArray:
    """A caller's array in the device's memory: a DeviceArray, in use as long as this is held."""

    given: Any
    memory: Memory
    """Its elements, dense and row-major; not to be released."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_writable: bool
    """False for one that its owner protects, and for a dense copy of one that is not dense."""
    written: Event | None
    """Passed when what its owner had enqueued before is done; None: the run's first token says."""
    owner: object = None
    """What else has to live as long as the memory is used."""
    room: tuple[int, ...] | None = None
    """The shape of the memory that it begins, where there is room behind it along one axis."""
    is_argument: bool = False
    """True if kernels may have the memory as an argument: a buffer of its own, or all of one."""

    @property
    def size_bytes(self) -> int:
        """How much memory its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize


class HostMemory(Protocol):
    """Memory of the host that the device copies from at full speed: pinned, or mapped."""

    @property
    def array(self) -> Bytes:
        """Its bytes; not to be touched between the enqueueing of a copy and its event."""

    def release(self) -> None:
        """Give it back, when no copy uses it any more."""


Argument = Memory | int | float
"""int is passed as a C ``int``, float as ``float``."""


class Kernel(Protocol):
    """One function of a program with its arguments, for one launch at a time."""

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        """Set all arguments, in order; the memory has to live as long as the kernel."""


class Program(Protocol):
    """Compiled source, or a library's plan, whose one function has the operation's name."""

    def kernel(self, name: str) -> Kernel:
        """Make a new kernel object of a function."""


class LaunchGraph(Protocol):
    """Launches that are replayed as one command: a CUDA graph, or an OpenCL command buffer.

    Copies between the device and host memory that it made may be among them. It has the arguments
    of the kernels as they were, and is replayed once at a time. It goes when it is dropped, on any
    thread, which is not before a replay is over; the kernels and the memory of its arguments and
    copies are there as long as it may be replayed.
    """


class Queue(Protocol):
    """An in-order queue: what is enqueued only, and runs later. Not on two threads at once.

    Events of what is enqueued while ``is_timed`` know their times; others need not. While it
    ``spins``, a thread that waits for a run's last event may keep a core busy to wake sooner.
    """

    is_timed: bool
    spins: bool

    def write(self, target: Memory, source: Bytes) -> Event:
        """Copy host bytes to the device; ``source`` must stay as it is until the event."""

    def read(self, target: Bytes, source: Memory) -> Event:
        """Copy device memory to host bytes, which are undefined until the event."""

    def copy(
        self,
        target: Memory,
        source: Memory,
        size_bytes: int,
        target_offset_bytes: int = 0,
        source_offset_bytes: int = 0,
    ) -> Event:
        """Copy within the device's memory."""

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        """Run a kernel over a grid of work-items; it has to live until that is over."""

    def replay(self, launch_graph: LaunchGraph) -> Event:
        """Run all that a launch graph of this context has, in its order."""

    def wait_for(self, events: Sequence[Event]) -> None:
        """Make what is enqueued from here on wait for these; it fails if one of them does."""

    def marker(self, events: Sequence[Event], *, is_last: bool = False) -> Event:
        """Enqueue a point that is over when all before it is, and failed if one of ``events`` is.

        ``is_last``: a thread of the host will sleep until then. It flushes: the driver begins with
        all that is enqueued so far, even if it refuses the marker.
        """


class Context(Protocol):
    """One opened device."""

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""

    def queue(self, name: str) -> Queue:
        """Make an in-order queue, which is timed to begin with."""

    def buffer(self, size_bytes: int) -> Memory:
        """Make device memory of at least one byte, with undefined content."""

    def host_memory(self, size_bytes: int) -> HostMemory:
        """Make host memory of at least one byte for copies."""

    def adopt(self, given: Any) -> AdoptedArray | None:
        """See an array of another library by DLPack; None if it is not in this device's memory.

        Called on the thread of its owner, whose current stream says what it waits for. Only where
        ``can_adopt``; does not block.
        """

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        """Make a DLPack capsule of memory that is complete; it keeps the array's owner.

        ``options`` are those of ``__dlpack__``. None if no library takes this device's memory.
        Raises BufferError, and DriverError of kind OTHER for a type that the library does not have.
        """

    def program(self, source: str) -> Program:
        """Compile kernels, or take them from the disk's cache. Blocks, for up to seconds."""

    def library_program(self, operation: LibraryOperation) -> Program:
        """Build a library's plan for an operation. Blocks, for up to seconds.

        Only for what is in ``facts.libraries``, and for a UserOperation where the device's plugin
        takes extensions. The sizes of its launches say nothing.
        """

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        """Capture what ``enqueue`` launches, writes and reads on the queue that it is given.

        Only if ``can_capture``. It may be called twice, and the first time for real: what it writes
        must be free to be written, and what it reads is undefined. One call at a time for a device,
        while other queues go on. Nothing of it is running any more when this returns or raises.
        Blocks, for milliseconds. ErrorKind.OTHER says that these launches cannot be captured.
        """

    def close(self) -> None:
        """Release the device, when nothing of it is used any more."""


class Driver(Protocol):
    """Finds the devices of this machine.

    Both methods raise DeviceError in a process that was forked from one which had used a driver.
    """

    def find_devices(self) -> list[DeviceFacts]:
        """List the devices of all platforms; raises DeviceError where there is no driver."""

    def open(self, facts: DeviceFacts) -> Context:
        """Open a device that ``find_devices`` has listed."""
