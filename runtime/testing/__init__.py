"""The test kit: invented devices, and the behaviour that every device must show."""

from .mock_plugin import MockDevice, MockDevices, MockPlugin

__all__ = ["MockDevice", "MockDevices", "MockPlugin"]
