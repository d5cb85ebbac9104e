"""The public test kit: executors and devices that wait for the test, and the conformance suite.

- ``ManualExecutor``, ``ManualStreams``, ``VirtualTimer``: nothing happens until the test says so.
- ``MockDevices``: the mock devices MOCK.0, MOCK.1, ... to load networks on; they fail where
  a test plants a fault. ``DeviceThread`` fires manual streams by itself.
- ``conformance_cases``: what every device must do, as functions that a plugin's tests call.
"""

from .executors import (
    NOW,
    DeviceStreamExecutor,
    HostReady,
    ManualEvent,
    ManualExecutor,
    ManualStream,
    ManualStreams,
    VirtualTimer,
)
from .runtime.testing import (
    ConformanceCase,
    DeviceThread,
    Fault,
    MockDevice,
    MockDevices,
    MockPlugin,
    conformance_cases,
)

__all__ = [
    "NOW",
    "ConformanceCase",
    "DeviceStreamExecutor",
    "DeviceThread",
    "Fault",
    "HostReady",
    "ManualEvent",
    "ManualExecutor",
    "ManualStream",
    "ManualStreams",
    "MockDevice",
    "MockDevices",
    "MockPlugin",
    "VirtualTimer",
    "conformance_cases",
]
