"""A driver without hardware, which does what is enqueued in any order that a device might choose.

Queues are in order, and nothing but events orders one against another: ``advance`` does one command
of a queue drawn from the seed. Memory is undefined, full of 0xFF, until a command has written it,
and again once it is released. What a copy reads is read when the device gets to it, and what it
writes is spoilt until then. Kernels are Python functions, by the name of the kernel's label.

The device's clock is the host's ``CLOCK_AHEAD_NS`` later. By it every copy and launch takes
``TOOK_NS``, whenever the test lets it be done: queues work side by side, each at once if it can.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from aioinfer.backends.accelerator.queues.driver import (
    AdoptedArray,
    DeviceFacts,
    DriverError,
    ErrorKind,
)
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from unit.backends.accelerator.fake_launch_graph import (
    FakeCapture,
    FakeLaunchGraph,
    OneAtATime,
    replay_of,
    run_for_nothing,
)
from unit.backends.accelerator.fake_memory import ALIGN_BYTES, SPOILT, FakeHostMemory, FakeMemory

if TYPE_CHECKING:
    from unit.backends.accelerator.on_device import OnDevice

WAIT_S = 20.0
CLOCK_AHEAD_NS = 7 * 10**15
TOOK_NS = 10**12  # the host's times are nothing beside it
FACTS = DeviceFacts(
    index=0,
    name="a fake",
    platform="Fake Platform",
    platform_version="OpenCL 1.2 fake 1.0",
    driver_version="1.0",
    kind="discrete",
    memory_bytes=1 << 20,
    largest_buffer_bytes=1 << 19,
    align_bytes=ALIGN_BYTES,
    work_group_size=256,
    has_float16=False,
)


@dataclass
class ManualEvent:
    """The end of a command; ``is_over`` once the device has come to it."""

    label: str
    needs: Sequence[ManualEvent] = ()
    action: Callable[[], None] = lambda: None
    error: DriverError | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    enqueued_ns: int = field(default_factory=lambda: perf_counter_ns() + CLOCK_AHEAD_NS)
    times: tuple[int, int] | None = None
    """None: the device does not know them."""
    array: np.ndarray | None = None
    """That of the host which a copy's event keeps alive, as long as itself."""
    can_tell: bool = True
    """False: the driver fails when it is asked for the command's status."""
    memories: Sequence[FakeMemory] = ()
    """What it uses on the device."""
    at_end: Callable[[], None] = lambda: None
    """Called once it has ended or failed."""
    is_enqueued: bool = False
    """False for a command that the driver has refused: there is nothing to wait for."""

    def wait(self) -> None:
        assert self.ended.wait(WAIT_S), f"{self.label} never ended"
        if self.error is not None:
            raise DriverError(ErrorKind.WAITED_FOR_FAILURE, "clWaitForEvents failed")

    @property
    def is_over(self) -> bool:
        self._ask()
        return self.ended.is_set()

    @property
    def failure(self) -> DriverError | None:
        self._ask()
        return self.error if self.ended.is_set() else None

    @property
    def times_ns(self) -> tuple[int, int]:
        assert self.ended.is_set()
        if self.times is None:
            raise DriverError(ErrorKind.OTHER, "PROFILING_INFO_NOT_AVAILABLE")
        return self.times

    @property
    def queued_ns(self) -> int:
        assert self.ended.is_set()
        return self.enqueued_ns

    def _ask(self) -> None:
        if not self.can_tell:
            raise DriverError(ErrorKind.LOST, "INVALID_COMMAND_QUEUE")

    def __del__(self) -> None:
        if self.is_enqueued and not self.ended.is_set() and self.label in ("write", "read"):
            FakeContext.dropped.append(self.label)


class FakeQueue:
    def __init__(self, name: str, context: FakeContext) -> None:
        self.name, self._context = name, context
        self.is_timed, self.spins = True, False
        self.commands: deque[ManualEvent] = deque()
        self.now_ns = 0

    def write(self, target: FakeMemory, source: np.ndarray) -> ManualEvent:
        def copy() -> None:
            target.use()[: source.size] = source

        return self._add(ManualEvent("write", action=copy, array=source, memories=[target]))

    def read(self, target: np.ndarray, source: FakeMemory) -> ManualEvent:
        target[:] = SPOILT

        def copy() -> None:
            target[:] = source.use()[: target.size]

        return self._add(ManualEvent("read", action=copy, array=target, memories=[source]))

    def copy(
        self,
        target: FakeMemory,
        source: FakeMemory,
        size_bytes: int,
        target_offset_bytes: int = 0,
        source_offset_bytes: int = 0,
    ) -> ManualEvent:
        assert target_offset_bytes + size_bytes <= target.size_bytes
        assert source_offset_bytes + size_bytes <= source.size_bytes

        def copy() -> None:
            there = target.use()[target_offset_bytes : target_offset_bytes + size_bytes]
            there[:] = source.use()[source_offset_bytes : source_offset_bytes + size_bytes]

        return self._add(ManualEvent("copy", action=copy, memories=[target, source]))

    def launch(
        self, kernel: FakeKernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> ManualEvent:
        assert len(global_size) == len(local_size)
        arguments = list(kernel.arguments)
        used = [item for item in arguments if isinstance(item, FakeMemory)]
        return self._add(
            ManualEvent("launch", action=lambda: kernel.function(*arguments), memories=used)
        )

    def replay(self, launch_graph: FakeLaunchGraph) -> ManualEvent:
        launch_graph.begin()
        action, at_end = replay_of(launch_graph)
        try:
            return self._add(ManualEvent("replay", action=action, at_end=at_end))
        except DriverError:
            launch_graph.end()
            raise

    def wait_for(self, events: Sequence[ManualEvent]) -> None:
        self._add(ManualEvent("wait", needs=tuple(events)))

    def marker(self, events: Sequence[ManualEvent], *, is_last: bool = False) -> ManualEvent:
        return self._add(ManualEvent("marker", needs=tuple(events)))

    def _add(self, event: ManualEvent) -> ManualEvent:
        return self._context.add(self, event)


class FakeKernel:
    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.arguments: tuple[Any, ...] = ()

    def set_arguments(self, arguments: Sequence[Any]) -> None:
        self.arguments = tuple(arguments)


class FakeProgram:
    def __init__(self, functions: dict[str, Callable[..., None]]) -> None:
        self._functions = functions

    def kernel(self, name: str) -> FakeKernel:
        return FakeKernel(self._functions[name.rsplit("_", 1)[0]])


class FakeContext:
    """One opened fake device. ``fails`` gives commands that are to fail, by label and error."""

    dropped: list[str] = []
    """What somebody let go of before it was over: copy events, and launch graphs."""

    def __init__(self, facts: DeviceFacts, driver: FakeDriver) -> None:
        self.facts, self.driver = facts, driver
        self.queues: list[FakeQueue] = []
        self.buffers: list[FakeMemory] = []
        self.host_memories: list[FakeHostMemory] = []
        self.done: list[str] = []
        self._launch_graphs: list[weakref.ref[FakeLaunchGraph]] = []
        self._capturing = OneAtATime()
        self._lock = threading.RLock()
        self._broken: dict[FakeQueue, DriverError] = {}

    def queue(self, name: str) -> FakeQueue:
        queue = FakeQueue(name, self)
        self.queues.append(queue)
        return queue

    @property
    def alive(self) -> list[FakeMemory | FakeHostMemory]:
        """All memory that was taken and not given back."""
        return [item for item in (*self.buffers, *self.host_memories) if not item.is_released]

    @property
    def launch_graphs(self) -> list[FakeLaunchGraph]:
        """All that are still there."""
        return [item for found in self._launch_graphs if (item := found()) is not None]

    def buffer(self, size_bytes: int) -> FakeMemory:
        self._count_allocation()
        memory = FakeMemory(np.full(size_bytes, SPOILT, np.uint8))
        self.buffers.append(memory)
        return memory

    def host_memory(self, size_bytes: int) -> FakeHostMemory:
        self._count_allocation()
        memory = FakeHostMemory(size_bytes)
        self.host_memories.append(memory)
        return memory

    def program(self, source: str) -> FakeProgram:
        if self.driver.build_error is not None:
            raise self.driver.build_error
        return FakeProgram(self.driver.functions)

    def adopt(self, given: OnDevice) -> AdoptedArray | None:
        """Take an array of the fake device; it is in use as long as what this gives is held."""
        assert self.facts.can_adopt
        if given.context is not self:
            return None
        return AdoptedArray(
            given, given.memory, given.shape, given.dtype, given.is_writable, given.enqueued()
        )

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        return None

    def library_program(self, operation: LibraryOperation) -> FakeProgram:
        assert operation.library in self.facts.libraries
        if self.driver.build_error is not None:
            raise self.driver.build_error
        return FakeProgram(self.driver.functions)

    def capture(self, enqueue: Callable[[FakeLaunchGraph], None]) -> FakeLaunchGraph:
        assert self.facts.can_capture
        with self._capturing:
            self._count_capture_step()
            warm_up = self._capture(enqueue)
            with self._lock:
                commands = [event for queue in self.queues for event in queue.commands]
                in_use = [memory for event in commands for memory in event.memories]
                alive = [memory for memory in self.buffers if not memory.is_released]
                run_for_nothing(warm_up, alive, in_use)
            self.driver.while_capturing()
            launches = self._capture(enqueue)
            assert launches == warm_up
            self._count_capture_step()
        launch_graph = FakeLaunchGraph(launches, self.dropped)
        self._launch_graphs.append(weakref.ref(launch_graph))
        return launch_graph

    def _capture(self, enqueue: Callable[[FakeCapture], None]) -> list[Any]:
        capture = FakeCapture(lambda: ManualEvent("captured"), self._count_capture_step)
        return capture.take(enqueue)

    def close(self) -> None:
        return

    def add(self, queue: FakeQueue, event: ManualEvent) -> ManualEvent:
        self._count_command()
        with self._lock:
            event.is_enqueued = True
            queue.commands.append(event)
            if self.driver.is_eager:
                self.run_all()
            elif queue.name.endswith(("setup", "reads")):
                self._do(queue, queue.commands.popleft())
        return event

    def advance(self, order: random.Random) -> bool:
        """Do one command of a queue that can go on; False if none can."""
        with self._lock:
            ready = [queue for queue in self.queues if self._can_go_on(queue)]
            if not ready:
                return False
            queue = order.choice(ready)
            self._do(queue, queue.commands.popleft())
            return True

    def advance_queue(self, queue: FakeQueue) -> bool:
        """Do one command of this queue; False if it cannot go on."""
        with self._lock:
            if not self._can_go_on(queue):
                return False
            self._do(queue, queue.commands.popleft())
            return True

    def run_all(self, order: random.Random | None = None) -> None:
        """Do all that can be done."""
        order = order or random.Random(0)
        while self.advance(order):
            pass

    def _count_allocation(self) -> None:
        self.driver.allocation_count += 1
        error = self.driver.allocation_errors.get(self.driver.allocation_count)
        if error is not None:
            raise DriverError(error.kind, error.text)  # one that was raised keeps frames

    def _count_command(self) -> None:
        self.driver.command_count += 1
        error = self.driver.command_errors.get(self.driver.command_count)
        if error is not None:
            raise DriverError(error.kind, error.text)  # one that was raised keeps frames

    def _count_capture_step(self) -> None:
        self.driver.capture_step_count += 1
        error = self.driver.capture_errors.get(self.driver.capture_step_count)
        if error is not None:
            raise DriverError(error.kind, error.text)  # one that was raised keeps frames

    def _can_go_on(self, queue: FakeQueue) -> bool:
        return bool(queue.commands) and all(need.ended.is_set() for need in queue.commands[0].needs)

    def _do(self, queue: FakeQueue, event: ManualEvent) -> None:
        self.done.append(f"{queue.name.rsplit(' ', 1)[-1]}: {event.label}")
        error: DriverError | None = None
        if any(need.error is not None for need in event.needs):
            error = DriverError(
                ErrorKind.WAITED_FOR_FAILURE, "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"
            )
        error = error or self.driver.fails.pop(self.done[-1], None)
        if error is None:
            event.action()
        needed = [need.times[1] for need in event.needs if need.times is not None]
        began_ns = max(queue.now_ns, event.enqueued_ns, *needed)
        queue.now_ns = began_ns + (0 if event.label in ("wait", "marker") else TOOK_NS)
        if error is None and self.done[-1] not in self.driver.untimed:
            event.times = began_ns, queue.now_ns
        event.error = error
        event.at_end()
        event.action, event.at_end, event.needs = (lambda: None), (lambda: None), ()
        event.ended.set()


class FakeDriver:
    """``functions`` compute kernels, by label; ``is_eager`` does commands as they are enqueued."""

    def __init__(self, *facts: DeviceFacts, is_eager: bool = True) -> None:
        given = facts or (FACTS,)
        self.facts = [replace(item, index=index) for index, item in enumerate(given)]
        self.is_eager = is_eager
        self.functions: dict[str, Callable[..., None]] = {}
        self.fails: dict[str, DriverError] = {}
        self.untimed: set[str] = set()
        """Commands of which the device does not know the times, by queue and label."""
        self.build_error: DriverError | None = None
        self.allocation_errors: dict[int, DriverError] = {}
        """By number, from 1 on, those of buffers and host memories that are refused."""
        self.allocation_count = 0
        self.command_errors: dict[int, DriverError] = {}
        """By number, from 1 on, those of commands that are refused when they are enqueued."""
        self.command_count = 0
        self.capture_errors: dict[int, DriverError] = {}
        """By number, from 1 on, those of the steps of capturing that fail: it begins, launches are
        run for nothing, launches are captured, it ends."""
        self.capture_step_count = 0
        self.while_capturing: Callable[[], None] = lambda: None
        """Called between what is run for nothing and what is captured."""
        self.contexts: list[FakeContext] = []

    def find_devices(self) -> list[DeviceFacts]:
        return self.facts

    def open(self, facts: DeviceFacts) -> FakeContext:
        context = FakeContext(facts, self)
        self.contexts.append(context)
        return context
