"""Which device the tests of OPENCL use: the first, or the one that AIOINFER_OPENCL_DEVICE names."""

from __future__ import annotations

import os

from aioinfer import Core
from aioinfer.runtime.device_name import parse_device

__all__ = ["choose_device"]


def choose_device(core: Core, plugin: str = "OPENCL") -> None:
    """Let the plugin's name mean the device that is wanted, such as OPENCL.1, in this Core.

    Raises DeviceError where that is not there.
    """
    wanted = os.environ.get("AIOINFER_OPENCL_DEVICE")
    if wanted:
        core.set_config(plugin, {"DEVICE_ID": parse_device(wanted).id or ""})
