"""What one device has given to this process: counted, refused before it is too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError
from unit.backends.accelerator.fake_driver import FACTS
from unit.backends.accelerator.opened import Opened

MIB = 1 << 20


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened(memory_bytes=8 * MIB, largest_buffer_bytes=4 * MIB)
    yield made
    made.close()


def test_what_is_taken_is_counted_until_it_is_given_back(opened: Opened) -> None:
    memory = opened.device.memory
    first, second = memory.buffer(MIB, "one"), memory.buffer(100, "another")
    assert memory.taken_bytes == MIB + 100
    memory.release(first)
    assert memory.taken_bytes == 100
    memory.release(second)
    assert memory.taken_bytes == 0
    assert opened.context.alive == []


def test_more_than_the_device_has_is_refused_and_not_asked_for(opened: Opened) -> None:
    memory = opened.device.memory
    for _ in range(2):
        memory.buffer(3 * MIB, "a network")
    with pytest.raises(
        DeviceError,
        match=r"a slot of 'net' needs 3 MiB on FAKE\.0, which has 8 MiB, 6 MiB of them taken; "
        "close other networks",
    ):
        memory.buffer(3 * MIB, "a slot of 'net'")
    assert len(opened.context.buffers) == 2


def test_a_buffer_that_is_too_large_alone_is_refused(opened: Opened) -> None:
    with pytest.raises(
        DeviceError, match=r"one buffer of 5 MiB, and FAKE\.0 makes none above 4 MiB.*HETERO"
    ):
        opened.device.memory.buffer(5 * MIB, "the weights of 'net'")
    assert opened.context.buffers == []


def test_room_is_asked_for_all_buffers_together(opened: Opened) -> None:
    opened.device.memory.check_room("four", [2 * MIB] * 4)
    with pytest.raises(DeviceError, match="five needs 10 MiB"):
        opened.device.memory.check_room("five", [2 * MIB] * 5)
    assert opened.context.buffers == []


def test_what_the_driver_refuses_is_not_counted(opened: Opened) -> None:
    opened.driver.allocation_errors[1] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "MEM_OBJECT_ALLOCATION_FAILURE"
    )
    with pytest.raises(
        DeviceError,
        match=r"FAKE\.0 failed while taking memory for a slot: MEM_OBJECT_ALLOCATION_FAILURE; "
        "close other networks on it, or use a smaller model or batch",
    ):
        opened.device.memory.buffer(MIB, "a slot")
    assert opened.taken_bytes == 0
    opened.device.memory.buffer(FACTS.align_bytes, "a slot")
    assert opened.taken_bytes == FACTS.align_bytes
