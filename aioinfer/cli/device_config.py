"""Properties from the command line: KEY=VALUE, DEVICE:KEY=VALUE and NODE=DEVICE. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..runtime.devices.virtual_plugin import DEVICE_PROPERTIES
from .arguments import OptionError, parse_pairs

__all__ = ["AFFINITY", "device_config"]

WANTED = "KEY=VALUE or DEVICE:KEY=VALUE"
AFFINITY = "AFFINITY"
"""The property of devices that partition: node -> device."""


def device_config(settings: Iterable[str], affinity: Iterable[str] = ()) -> dict[str, Any]:
    """Make a configuration of the items of --config and --affinity.

    ``DEVICE:KEY=VALUE`` sets a property of one of the devices of a virtual one. Raises OptionError
    for an item that is not of these forms and for what is given twice.
    """
    config: dict[str, Any] = {}
    of_devices: dict[str, dict[str, str]] = {}
    for name, value in parse_pairs(settings, "--config", WANTED).items():
        device, colon, key = name.rpartition(":")
        if colon and not (device and key):
            raise OptionError(f"--config {name}={value}: {WANTED} is wanted")
        if colon:
            of_devices.setdefault(device, {})[key] = value
        else:
            config[key] = value
    if of_devices:
        config[DEVICE_PROPERTIES.key] = of_devices
    nodes = parse_pairs(affinity, "--affinity", "NODE=DEVICE", at_last=True)
    if nodes:
        config[AFFINITY] = nodes
    return config
