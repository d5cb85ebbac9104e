"""The devices that aioinfer ships; each folder is a plugin, found by its entry point."""

from ..errors import DeviceError as DeviceError  # first: outside the package this must fail
