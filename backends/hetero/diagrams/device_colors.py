"""One pair of colours for each device of a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DeviceColor", "device_colors"]


class DeviceColor(NamedTuple):
    """A light colour to fill with, on which black text reads well, and a dark one for lines."""

    fill: str
    line: str


# Told apart by people with the common kinds of colour blindness (after Okabe and Ito 2008).
PALETTE = (
    DeviceColor("#d6e9f8", "#0072b2"),
    DeviceColor("#fde3c4", "#b85c00"),
    DeviceColor("#cfeee3", "#00785a"),
    DeviceColor("#f3d9e8", "#a34a7d"),
    DeviceColor("#f6f1b8", "#8a7d00"),
    DeviceColor("#dcdcdc", "#555555"),
)


def device_colors(devices: Sequence[str]) -> dict[str, DeviceColor]:
    """Return the colours of each device, in turn; they repeat after six."""
    return {device: PALETTE[index % len(PALETTE)] for index, device in enumerate(devices)}
