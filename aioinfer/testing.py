"""The public test kit: executors and devices that wait for the test, and the conformance suite.

- ``ManualExecutor``, ``FakeDevice``, ``VirtualTimer``: nothing happens until the test says so.
- ``MockDevices``: the invented devices MOCK.0, MOCK.1, ... to load networks on.
- ``conformance_cases``: what every device must do, as functions that a plugin's tests call.
"""

from .executors import (
    NOW,
    DeviceStreamExecutor,
    FakeDevice,
    FakeEvent,
    FakeStream,
    HostReady,
    ManualExecutor,
    VirtualTimer,
)
from .runtime.testing import (
    ConformanceCase,
    MockDevice,
    MockDevices,
    MockPlugin,
    conformance_cases,
)

__all__ = [
    "NOW",
    "ConformanceCase",
    "DeviceStreamExecutor",
    "FakeDevice",
    "FakeEvent",
    "FakeStream",
    "HostReady",
    "ManualExecutor",
    "MockDevice",
    "MockDevices",
    "MockPlugin",
    "VirtualTimer",
    "conformance_cases",
]
