"""A Core with a device that cannot start."""

from __future__ import annotations

from typing import Any

from aioinfer import Core
from aioinfer.errors import DeviceError

__all__ = ["broken", "core_with_broken_device"]


def broken(_core: object, _name: str) -> Any:
    raise DeviceError("no driver is installed")


def core_with_broken_device() -> Core:
    core = Core()
    core.register_plugin("BROKEN", broken)
    return core
