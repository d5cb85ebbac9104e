"""Rungs of the driver alone: copies, one kernel, times of events, and a capture of that kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource, program_text
from aioinfer.runtime.devices.device_name import parse_device
from gpu.device import DEVICE
from gpu.watched_driver import cupy_driver

__all__ = ["capture_and_replay", "write_launch_read"]

COUNT, GROUP = 1 << 16, 64
ADD_ONE = KernelSource.of(
    "add_one",
    """
__kernel void $name(__global uchar *x, const int count) {
    const size_t place = get_global_id(0);
    if (place < (size_t)count) x[place] += 1;
}
""",
)


class Place:
    """An opened device with one queue, and bytes in both memories that are copied there."""

    def __init__(self, context: Any) -> None:
        self.context, self.queue = context, context.queue("ladder")
        self.memory = context.buffer(COUNT)
        self.host = context.host_memory(COUNT)
        self.content = np.random.default_rng(0).integers(0, 250, COUNT, np.uint8)
        self.host.array[:COUNT] = self.content
        self.kernel = context.program(program_text([ADD_ONE])).kernel(ADD_ONE.name)
        self.kernel.set_arguments([self.memory, COUNT])

    def launch(self, queue: Any) -> Any:
        return queue.launch(self.kernel, (COUNT,), (GROUP,))

    def read(self) -> np.ndarray[Any, Any]:
        """Read the memory into bytes that were something else."""
        self.host.array[:COUNT] = 0xFF
        self.queue.read(self.host.array[:COUNT], self.memory).wait()
        return np.array(self.host.array[:COUNT])


@contextmanager
def opened() -> Iterator[Place]:
    driver = cupy_driver()
    facts = driver.find_devices()[int(parse_device(DEVICE).id or 0)]
    print(f"{facts.name}, {facts.platform_version}, driver {facts.driver_version}")
    context = driver.open(facts)
    place = Place(context)
    yield place
    place.memory.release()
    place.host.release()
    context.close()


def check(place: Place, added: int) -> None:
    """Print how many bytes differ before that is asserted."""
    found, wanted = place.read(), place.content + added
    wrong = int(np.count_nonzero(found != wanted))
    print(f"after {added} launches: {wrong} of {COUNT} bytes are wrong; {found[:8]}, {wanted[:8]}")
    assert not wrong


def write_launch_read() -> None:
    with opened() as place:
        events = [
            place.queue.write(place.memory, place.host.array[:COUNT]),
            place.launch(place.queue),
            place.queue.marker([]),
        ]
        events[-1].wait()
        print(f"over: {[event.is_over for event in events]}")
        assert all(event.is_over and event.failure is None for event in events)
        for name, event in zip(("write", "launch", "marker"), events, strict=True):
            began_ns, ended_ns = event.times_ns
            print(f"{name}: queued {event.queued_ns}, began {began_ns}, ended {ended_ns} ns")
            assert began_ns <= ended_ns
        check(place, 1)


def capture_and_replay() -> None:
    with opened() as place:
        graph = place.context.capture(place.launch)
        print(f"captured: {graph!r}")
        place.host.array[:COUNT] = place.content
        place.queue.write(place.memory, place.host.array[:COUNT]).wait()
        for count in (1, 2, 3):
            place.queue.replay(graph).wait()
            check(place, count)
