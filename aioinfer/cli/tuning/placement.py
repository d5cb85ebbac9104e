"""Where a configuration is loaded: on the device, or on BATCH around it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DeviceError
from ...runtime.devices.device_name import DEVICE_PROPERTIES, DeviceEntry, parse_device
from ...runtime.devices.implicit_batching import BATCH

__all__ = ["Placement", "batch_around", "placed_on_batch"]


@dataclass(frozen=True)
class Placement:
    """A device string, and all properties that a network is loaded with there."""

    device: str
    config: Mapping[str, Any]


def batch_around(device: str, rows: int) -> str | None:
    """Return the device string of BATCH around a device, or None where the grammar has none.

    It has none around BATCH itself, and around a list with a count, where BATCH's own would stand.
    """
    text = f"{BATCH}:{device}({rows})"
    try:
        entries = parse_device(text).entries
        held = str(parse_device(device))
    except DeviceError:
        return None
    return text if entries == (DeviceEntry(held, rows),) else None


def placed_on_batch(
    device: str, config: Mapping[str, Any], rows: int, is_of_batch: Callable[[str], bool]
) -> Placement:
    """Move a configuration of a device to BATCH around it, where ``batch_around`` has that.

    What ``is_of_batch`` is false for goes to the device inside.
    """
    around = batch_around(device, rows)
    assert around is not None
    values = {key: value for key, value in config.items() if is_of_batch(key)}
    inside = {key: value for key, value in config.items() if not is_of_batch(key)}
    if inside:
        said: Mapping[str, Mapping[str, Any]] = values.get(DEVICE_PROPERTIES, {})
        values[DEVICE_PROPERTIES] = {**said, device: {**said.get(device, {}), **inside}}
    return Placement(around, values)
