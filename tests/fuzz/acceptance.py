"""How many of the valid runs each device accepted, and whether that is enough to mean anything."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Acceptance"]

_FEWEST_RUNS = 100
"""Of fewer valid runs the share is chance."""
_WHOLE_ONNX, _OWN_KERNELS = 0.95, 0.5
"""Floors: with REFERENCE a device takes nearly all of ONNX, by its own kernels three quarters."""


class Acceptance:
    """Valid runs by device: how many were given, and how many of them had a result."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.case_count = 0
        self._counts = dict.fromkeys(devices, (0, 0))

    def add(self, device: str, given_count: int, accepted_count: int) -> None:
        given, accepted = self._counts[device]
        self._counts[device] = given + given_count, accepted + accepted_count

    def describe(self) -> list[str]:
        """Give a line for each device; one that is below its floor says so."""
        return [self._describe(device) for device in self._counts]

    def shortfalls(self) -> list[str]:
        """Name the devices that accepted so little that finding nothing means nothing."""
        return [device for device in self._counts if self._is_short(device)]

    def _is_short(self, device: str) -> bool:
        given, accepted = self._counts[device]
        return given >= _FEWEST_RUNS and accepted < _floor(device) * given

    def _describe(self, device: str) -> str:
        given, accepted = self._counts[device]
        share = f"{accepted / given:.1%}" if given else "none"
        text = f"{device} accepted {accepted} of {given} valid runs ({share})"
        if self._is_short(device):
            text += f", fewer than {_floor(device):.0%}: this run proves nothing"
        return text


def _floor(device: str) -> float:
    return _WHOLE_ONNX if "REFERENCE" in device else _OWN_KERNELS
