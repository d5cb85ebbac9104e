"""A Core with REFERENCE and with invented devices that wait for the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit.backends.hetero.small_graphs import new_core

import aioinfer
from aioinfer.testing import MockDevices


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with new_core() as made:
        yield made


@pytest.fixture
def mock(core: aioinfer.Core) -> MockDevices:
    """MOCK.0 and MOCK.1: each run waits until the test releases it."""
    devices = MockDevices(2)
    core.register_plugin("MOCK", devices.make_plugin)
    return devices
