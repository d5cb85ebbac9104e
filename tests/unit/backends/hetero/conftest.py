"""A Core with REFERENCE and with mock devices that wait for the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import MockDevices
from unit.backends.hetero.small_graphs import new_core


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with new_core() as made:
        yield made


@pytest.fixture
def mock(core: aioinfer.Core) -> Iterator[MockDevices]:
    """MOCK.0 to MOCK.2: each run waits until the test releases it, or has failed."""
    devices = MockDevices(3)
    core.register_plugin("MOCK", devices.make_plugin)
    yield devices
    while any(device.held.waiting_count for device in devices.devices):
        for device in devices.devices:
            device.held.release(device.held.waiting_count)
