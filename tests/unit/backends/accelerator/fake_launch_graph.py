"""Launch graphs of the fake driver, which find out callers that break the driver's contract.

Nothing may use the arena whose launches are captured: it is spoilt before they are run for nothing,
and behind that. They may write nothing else on the device. What they copy to the host is spoilt
until the device has come to it. A launch graph does not keep itself, its kernels or
its memory alive: who replays it has to, and it has to be gone before its memory is given back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unit.backends.accelerator.fake_memory import SPOILT


class FakeLaunchGraph:
    """Launches as they were captured; ``dropped`` is told if it goes during a replay."""

    def __init__(self, launches: Sequence[tuple[Any, tuple[Any, ...]]], dropped: list[str]) -> None:
        self._launches = [(weakref.ref(kernel), kernel.function, args) for kernel, args in launches]
        self._copies = [kernel for kernel, _ in launches if isinstance(kernel, FakeCopy)]
        self._dropped = dropped
        self.is_replayed = False
        self.replay_count = 0
        for memory in memories_of(launches):
            (memory.base or memory).launch_graphs.add(self)

    def begin(self) -> None:
        assert not self.is_replayed, "it is replayed already"
        self.is_replayed = True
        for copy in self._copies:
            copy.spoil_target()

    def end(self) -> None:
        self.is_replayed = False

    def run(self) -> None:
        self.replay_count += 1
        for kernel, function, arguments in self._launches:
            assert kernel() is not None, "a kernel is gone whose launch is replayed"
            function(*arguments)

    def __del__(self) -> None:
        if self.is_replayed:
            self._dropped.append("launch graph")


def replay_of(launch_graph: FakeLaunchGraph) -> tuple[Callable[[], None], Callable[[], None]]:
    """Give what a replay does, and what its end does; neither keeps the launch graph alive."""
    found = weakref.ref(launch_graph)

    def run() -> None:
        there = found()
        assert there is not None, "a launch graph is replayed that was dropped"
        there.run()

    def end() -> None:
        there = found()
        if there is not None:
            there.end()

    return run, end


class FakeCopy:
    """A copy in the place of a kernel."""

    def __init__(self, memory: Any, array: np.ndarray, *, is_read: bool) -> None:
        self.memory, self.array, self.is_read = memory, array, is_read

    def function(self, memory: Any) -> None:
        there = memory.use()[: self.array.size]
        if self.is_read:
            self.array[:] = there
        else:
            there[:] = self.array

    def spoil_target(self) -> None:
        if self.is_read:
            self.array[:] = SPOILT

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FakeCopy)
            and (other.memory, other.is_read) == (self.memory, self.is_read)
            and other.array is self.array
        )

    def __hash__(self) -> int:
        return hash((self.memory, self.is_read))


class FakeCapture:
    """The queue that launches and copies are captured on; ``count`` may fail."""

    is_timed = spins = False

    def __init__(self, event: Callable[[], Any], count: Callable[[], None]) -> None:
        self._event, self._count = event, count
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []
        self.is_open = True

    def launch(self, kernel: Any, global_size: Sequence[int], local_size: Sequence[int]) -> Any:
        assert self.is_open, "what was captured is over"
        assert len(global_size) == len(local_size)
        self._count()
        self.launches.append((kernel, tuple(kernel.arguments)))
        return self._event()

    def write(self, target: Any, source: np.ndarray) -> Any:
        return self._copy(FakeCopy(target, source, is_read=False))

    def read(self, target: np.ndarray, source: Any) -> Any:
        return self._copy(FakeCopy(source, target, is_read=True))

    def _copy(self, copy: FakeCopy) -> Any:
        assert self.is_open, "what was captured is over"
        self._count()
        self.launches.append((copy, (copy.memory,)))
        return self._event()

    def take(self, enqueue: Callable[[Any], None]) -> list[tuple[Any, tuple[Any, ...]]]:
        try:
            enqueue(self)
        finally:
            self.is_open = False
        return self.launches


class OneAtATime:
    """Fails for who enters while another is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        assert self._lock.acquire(blocking=False), "two launch graphs at once on one device"

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def run_for_nothing(
    launches: Sequence[tuple[Any, tuple[Any, ...]]], alive: Sequence[Any], in_use: Sequence[Any]
) -> None:
    """Run launches on undefined memory; ``in_use`` is what unfinished commands use."""
    arenas = {memory.base for memory in memories_of(launches) if memory.base is not None}
    used = {memory.base or memory for memory in in_use}
    assert not arenas & used, "the arena of a launch graph is in use"
    others = [memory for memory in alive if memory not in arenas]
    before = [memory.data.copy() for memory in others]
    spoil(arenas)
    with np.errstate(all="ignore"):
        for kernel, arguments in launches:
            kernel.function(*arguments)
    spoil(arenas)
    for memory, data in zip(others, before, strict=True):
        assert np.array_equal(memory.data, data), "a launch graph has written beyond its arena"


def spoil(arenas: set[Any]) -> None:
    for arena in arenas:
        arena.use()[:] = SPOILT


def memories_of(launches: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[Any]:
    return [item for _, arguments in launches for item in arguments if hasattr(item, "use")]
