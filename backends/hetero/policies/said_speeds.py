"""How fast a device is, as far as a partition asks: said by the user, or by what the device is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ....runtime.costs import DeviceSpeed
from ....runtime.properties.properties import Property

__all__ = ["DEVICE_SPEEDS", "default_speed", "speed_of"]

_HOST = DeviceSpeed(40e9, 8e9, 8e9, 50e-6, 2e-6)
_INTEGRATED = DeviceSpeed(400e9, 30e9, 10e9, 50e-6, 5e-6)
_DISCRETE = DeviceSpeed(10e12, 500e9, 10e9, 20e-6, 5e-6)
_BY_TYPE = {"cpu": _HOST, "integrated": _INTEGRATED, "discrete": _DISCRETE}
"""By DEVICE_TYPE: orders of magnitude. What counts is how devices differ."""

_FIELDS = {
    "GFLOPS": ("flop_per_s", 1e9),
    "GB_PER_S": ("bytes_per_s", 1e9),
    "LINK_GB_PER_S": ("carried_bytes_per_s", 1e9),
    "HOP_US": ("hop_s", 1e-6),
    "LAUNCH_US": ("launch_s", 1e-6),
}


def _parse_speeds(given: Any) -> Mapping[str, Mapping[str, float]]:
    wanted = (
        f"a mapping of devices to some of {', '.join(_FIELDS)} is wanted, such as "
        f"{{'CUDA': {{'GFLOPS': 20000}}}}"
    )
    if not isinstance(given, Mapping):
        raise ValueError(wanted)
    parsed: dict[str, Mapping[str, float]] = {}
    for device, values in given.items():
        if not isinstance(device, str) or not isinstance(values, Mapping):
            raise ValueError(wanted)
        speeds: dict[str, float] = {}
        for key, value in values.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if key not in _FIELDS or not is_number or not 0 < value < float("inf"):
                raise ValueError(f"{wanted}, each over 0; {key!r}: {value!r} of {device} is none")
            speeds[key] = float(value)
        parsed[device] = MappingProxyType(speeds)
    return MappingProxyType(parsed)


DEVICE_SPEEDS: Property[Mapping[str, Mapping[str, float]]] = Property(
    "DEVICE_SPEEDS",
    _parse_speeds,
    MappingProxyType({}),
    "How fast devices are, for PARTITION_POLICY=PIPELINE or LATENCY: {device: {'GFLOPS': .., "
    "'GB_PER_S': .., 'LINK_GB_PER_S': .., 'HOP_US': .., 'LAUNCH_US': ..}}; what is not said is "
    "guessed from DEVICE_TYPE. Under PRIORITY it is refused.",
)


def default_speed(device_type: str | None) -> DeviceSpeed:
    """Return what is supposed of a device by its DEVICE_TYPE; None: it does not say."""
    return _BY_TYPE.get(device_type or "cpu", _HOST)


def speed_of(speed: DeviceSpeed, said: Mapping[str, float]) -> DeviceSpeed:
    """Put what the user said, in the property's units, over what is supposed."""
    values = {_FIELDS[key][0]: value * _FIELDS[key][1] for key, value in said.items()}
    return replace(speed, **values)
