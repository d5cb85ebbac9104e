from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.queues.device_health import DeviceHealth
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError

OUT_OF_RESOURCES = DriverError(ErrorKind.OUT_OF_RESOURCES, "OUT_OF_RESOURCES")


def test_a_device_that_is_not_available_is_lost_for_ever() -> None:
    health = DeviceHealth("OPENCL.0")
    assert "is lost" in str(health.translate(DriverError(ErrorKind.LOST, "gone"), "uploading"))
    health.note_success()
    with pytest.raises(DeviceError, match=r"lost \(uploading: gone\)"):
        health.refuse_if_lost()


def test_a_lack_of_resources_that_persists_is_a_loss() -> None:
    health = DeviceHealth("OPENCL.0")
    for _ in range(2):
        assert "is lost" not in str(health.translate(OUT_OF_RESOURCES, "computing"))
    assert "is lost" in str(health.translate(OUT_OF_RESOURCES, "computing"))


def test_work_in_between_starts_the_count_anew() -> None:
    health = DeviceHealth("OPENCL.0")
    for _ in range(9):
        health.translate(OUT_OF_RESOURCES, "computing")
        health.note_success()
    health.refuse_if_lost()


def test_a_lack_of_memory_says_what_to_do() -> None:
    error = DeviceHealth("OPENCL.0").translate(
        DriverError(ErrorKind.OUT_OF_MEMORY, "no room"), "taking memory"
    )
    assert "failed while taking memory: no room; close other networks" in str(error)
