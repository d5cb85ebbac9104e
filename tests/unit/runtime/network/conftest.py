"""The network that most tests of this folder run, and a clock for it."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.models import tiny_model


@pytest.fixture
def network(core: aioinfer.Core, held: MockDevices) -> aioinfer.ExecutableNetwork:
    """Two slots; runs wait on the device until the test lets them end."""
    return core.load_network(tiny_model(), "MOCK.0")


@pytest.fixture
def clock(network: aioinfer.ExecutableNetwork) -> VirtualTimer:
    network.clock = made = VirtualTimer()
    return made
