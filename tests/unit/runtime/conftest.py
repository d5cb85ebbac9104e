"""A Core with held and streamed invented devices; nothing of aioinfer's threads may be left."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import MockDevices

SHARED_THREADS = {"aioinfer.timer"}  # one for the process, for ever


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    before = set(threading.enumerate())
    with aioinfer.Core() as made:
        yield made
    left = {thread.name for thread in threading.enumerate() if thread not in before}
    assert left <= SHARED_THREADS


@pytest.fixture
def held(core: aioinfer.Core) -> Iterator[MockDevices]:
    """MOCK.0 and MOCK.1: each run waits until the test releases it."""
    devices = MockDevices(2)
    core.register_plugin("MOCK", devices.make_plugin)
    yield devices
    for device in devices.devices:  # what a failed test has left would hold up core's close
        device.held.close()


@pytest.fixture
def streamed(core: aioinfer.Core) -> Iterator[MockDevices]:
    """STREAMED.0 and STREAMED.1: each run is enqueued on a fake device's streams."""
    devices = MockDevices(2, is_streamed=True)
    core.register_plugin("STREAMED", devices.make_plugin)
    yield devices
    for device in devices.devices:
        assert device.streams is not None
        device.streams.fire_all()
