"""Whether the device that a suite is about is there: else a skip, or a failure where it should be.

Most machines lack most devices. Where one should be present, set AIOINFER_REQUIRE_DEVICE=1.
"""

import os

import pytest

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.runtime.devices.device_name import parse_device

IS_REQUIRED = os.environ.get("AIOINFER_REQUIRE_DEVICE", "0") not in ("", "0")


def skip_if_missing(core: aioinfer.Core, device: str) -> None:
    """Skip, or fail, with the reason why a device or one that it is made of is not there."""
    try:
        for part in (device, *(entry.device for entry in parse_device(device).entries)):
            core.resolve_device(part)
    except DeviceError as error:
        if IS_REQUIRED:
            pytest.fail(f"{device} should be here, and is not: {error}")
        pytest.skip(str(error))
