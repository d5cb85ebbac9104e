"""The device that tests of OPENCL use: the first, or the one that AIOINFER_OPENCL_DEVICE names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from aioinfer.errors import AioInferError
from aioinfer.runtime.devices.device_name import parse_device

__all__ = ["choose_device", "core", "missing_reason", "skip_without_device"]

_WAY_OUT = "'make opencl-driver' installs Debian's, with which these tests run"


def choose_device(core: Core, plugin: str = "OPENCL") -> None:
    """Have the plugin's name mean the device that is wanted, such as OPENCL.1, in this Core.

    Raises DeviceError where that is not there.
    """
    wanted = os.environ.get("AIOINFER_OPENCL_DEVICE")
    if wanted:
        core.set_config(plugin, {"DEVICE_ID": parse_device(wanted).id or ""})


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as core:
        choose_device(core)
        yield core


def skip_without_device(items: list[pytest.Item], folder: Path) -> None:
    """Skip, of the tests below a folder, those that want a Core where there is no device."""
    below = f"{folder}{os.sep}"
    mine = [item for item in items if str(item.path).startswith(below) and _needs_device(item)]
    reason = missing_reason() if mine else None
    for item in mine if reason is not None else ():
        item.add_marker(pytest.mark.skip(reason=reason))


def missing_reason() -> str | None:
    """Return why there is no OPENCL device here and what to do about it, or None."""
    from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver

    try:
        PyOpenClDriver().find_devices()
    except AioInferError as error:
        return f"{error}; {_WAY_OUT}"
    return None


def _needs_device(item: pytest.Item) -> bool:
    return not {"core", "quick_core"}.isdisjoint(getattr(item, "fixturenames", ()))
