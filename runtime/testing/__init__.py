"""The test kit: invented devices, and the behaviour that every device must show."""

from .conformance import ConformanceCase, conformance_cases
from .mock_plugin import MockDevice, MockDevices, MockPlugin

__all__ = ["ConformanceCase", "MockDevice", "MockDevices", "MockPlugin", "conformance_cases"]
