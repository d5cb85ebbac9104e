"""A GPU that has its own mind, as ``fake_cupy.py`` shows it: streams, events, graphs, errors.

Nothing runs when it is enqueued. ``advance`` does one command of a stream that can go on, drawn
from a seed; who synchronises has everything done that it waits for. Memory lies on the host under
its true addresses: it is full of 0xFF before it is written and after it is freed, and what touches
freed memory fails the test. The clock is the device's own. A command that raises ``StickyError``
breaks the device: from then on every call says so. A capture is invalidated by what CUDA does not
allow in one: to wait, to ask, to load code.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unit.backends.cuda.fake_cupy import FakeCupy

SPOILT = 0xFF
TOOK_NS = 10_000


class FakeRuntimeError(RuntimeError):
    """CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: error number {status}")
        self.status = status


class FakeDriverError(FakeRuntimeError):
    """CUDADriverError, of another class with the same numbers."""


class FakeCompileError(Exception):
    """CompileException, of the compiler."""


class StickyError(Exception):
    """Raised by a kernel that breaks its device."""


class FakeGpu:
    """One device: its streams, memory and clock."""

    def __init__(self, memory_bytes: int = 1 << 20) -> None:
        self.memory_bytes = memory_bytes
        self.streams: list[ManualStream] = []
        self.blocks: dict[int, np.ndarray] = {}
        self.pinned: dict[int, np.ndarray] = {}
        self.now_ns = 5 * 10**9
        self.status = 0
        """The sticky error."""
        self.done: list[str] = []

    def use(self, address: int, size_bytes: int) -> np.ndarray:
        """Return the bytes at an address of a block that is alive."""
        for start, block in self.blocks.items():
            if start <= address and address + size_bytes <= start + block.size:
                return block[address - start : address - start + size_bytes]
        raise AssertionError("a command uses memory that is not there")

    def advance(self, order: random.Random) -> bool:
        """Do one command of a stream that can go on; False if none can."""
        ready = [stream for stream in self.streams if stream.can_go_on]
        if not ready:
            return False
        label, _, action = order.choice(ready).commands.popleft()
        self.done.append(label)
        if label not in ("record", "wait"):
            self.now_ns += TOOK_NS
        try:
            if self.status == 0:
                action()
        except StickyError as error:
            self.status = int(error.args[0])
        return True

    def run_all(self, seed: int = 0) -> None:
        order = random.Random(seed)
        while self.advance(order):
            pass


class ManualStream:
    def __init__(self, cupy: FakeCupy, non_blocking: bool = False) -> None:
        assert non_blocking, "it would wait for the legacy stream"
        self.cupy, self.index = cupy, cupy.current
        self.gpu = cupy.gpus[self.index]
        self.gpu.streams.append(self)
        self.commands: deque[tuple[str, Callable[[], bool], Callable[[], None]]] = deque()
        self.captured: list[Callable[[], None]] | None = None
        self.is_valid = True
        self.ptr = cupy.name(self)

    def __enter__(self) -> ManualStream:
        self.cupy.streams_in_use.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.cupy.streams_in_use.pop() is self

    @property
    def can_go_on(self) -> bool:
        return bool(self.commands) and self.commands[0][1]()

    def add(
        self,
        label: str,
        action: Callable[[], None],
        needs: Callable[[], bool] = lambda: True,
    ) -> None:
        self.cupy.call(label)
        self.cupy.check(self.gpu)
        if self.captured is None:
            self.commands.append((label, needs, action))
            return
        assert not gc.isenabled(), "the collector may run in the capture"
        self.captured.append(action)

    def wait_event(self, event: ManualEvent) -> None:
        latest = event.latest
        self.add("wait", lambda: None, lambda: latest is None or latest.is_passed)

    def synchronize(self) -> None:
        self.cupy.refuse_in_capture()
        while self.commands and self.gpu.advance(random.Random(0)):
            pass
        self.cupy.check(self.gpu)

    def begin_capture(self) -> None:
        self.cupy.call("begin_capture")
        assert self.captured is None
        self.captured, self.is_valid = [], True
        self.cupy.capturing.append(self)

    def end_capture(self) -> FakeGraph:
        self.cupy.capturing.remove(self)
        actions, self.captured = self.captured, None
        if not self.is_valid:
            raise FakeRuntimeError(901)
        assert actions is not None
        return FakeGraph(self, actions)


class FakeGraph:
    def __init__(self, stream: ManualStream, actions: Sequence[Callable[[], None]]) -> None:
        self.gpu, self.actions, self.launch_count = stream.gpu, actions, 0

    def upload(self, stream: ManualStream) -> None:
        stream.add("upload", lambda: None)

    def launch(self, stream: ManualStream) -> None:
        stream.cupy.must_be_current(self.gpu)
        self.launch_count += 1

        def run() -> None:
            for action in self.actions:
                action()

        stream.add("replay", run)


class FakeRecord:
    """One recording of an event, which may have been recorded again before it is passed."""

    is_passed, time_ns = False, 0


class ManualEvent:
    """Asked, it speaks of its latest record; who waits for it waits for the one of then."""

    def __init__(self, cupy: FakeCupy, block: bool = False, disable_timing: bool = False) -> None:
        self.blocks, self.has_time = block, not disable_timing
        cupy.check(cupy.gpus[cupy.current])
        self.cupy, self.gpu = cupy, cupy.gpus[cupy.current]
        self.latest: FakeRecord | None = None
        self.ptr = cupy.name(self)
        cupy.events.append(self)

    def record(self, stream: ManualStream) -> None:
        assert stream.gpu is self.gpu
        record = FakeRecord()

        def pass_by() -> None:
            record.is_passed, record.time_ns = True, self.gpu.now_ns

        stream.add("record", pass_by)
        self.latest = record

    @property
    def status(self) -> int:
        self.cupy.refuse_in_capture()
        if self.gpu.status:
            return self.gpu.status
        return 0 if self.latest is None or self.latest.is_passed else 600

    @property
    def done(self) -> bool:
        raise AssertionError("it is False for ever on a device that is lost")

    def synchronize(self) -> None:
        assert self.blocks or self.cupy.may_spin, "who waits would spin"
        self.cupy.refuse_in_capture()
        while self.status == 600:
            assert self.gpu.advance(random.Random(1)), "nothing will ever pass this event"
        self.cupy.check(self.gpu)
