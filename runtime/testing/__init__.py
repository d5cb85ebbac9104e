"""The test kit: mock devices, and the behaviour that every device must show."""

from .conformance import ConformanceCase, conformance_cases
from .device_thread import DeviceThread
from .mock_plugin import Fault, MockDevice, MockDevices, MockPlugin

__all__ = [
    "ConformanceCase",
    "DeviceThread",
    "Fault",
    "MockDevice",
    "MockDevices",
    "MockPlugin",
    "conformance_cases",
]
