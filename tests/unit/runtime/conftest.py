"""A Core with held and streamed mock devices; nothing of aioinfer's threads may be left."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import MockDevices

SHARED_THREADS = {"aioinfer.timer"}  # one for the process, for ever
LOOPS_THREAD = "AnyIO worker thread"
"""Ends by itself when its event loop has ended, and nobody waits for that."""
WAIT_S = 20.0


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    before = set(threading.enumerate())
    with aioinfer.Core() as made:
        yield made
    left = set(threading.enumerate()) - before
    for thread in left:
        if thread.name == LOOPS_THREAD:
            thread.join(WAIT_S)
    assert {thread.name for thread in left if thread.is_alive()} <= SHARED_THREADS


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
    """STREAMED.0 and STREAMED.1: each run is enqueued on manual streams."""
    devices = MockDevices(2, is_streamed=True)
    core.register_plugin("STREAMED", devices.make_plugin)
    yield devices
    for device in devices.devices:
        assert device.streams is not None
        device.streams.fire_all()
