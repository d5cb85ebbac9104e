"""Whether a device can still be used, from the errors of its driver. Pure but for its own state."""

from __future__ import annotations

from ....errors import DeviceError
from .driver import DriverError, ErrorKind

__all__ = ["DeviceHealth"]

_PATIENCE = 3
"""Times in a row that a device may be out of resources; a dead one says so for ever."""


class DeviceHealth:
    """Counts errors until a device is lost; what it says then stays. Any thread."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._strikes = 0
        self.lost: str | None = None
        """Why the device is lost; None while it is not."""

    def note_success(self) -> None:
        """Say that the device has done some work."""
        self._strikes = 0

    def translate(self, error: DriverError, doing: str) -> DeviceError:
        """Make the error that users see, and remember what it means for the device."""
        if error.kind is ErrorKind.OUT_OF_RESOURCES:
            self._strikes += 1
        if error.kind is ErrorKind.LOST or self._strikes >= _PATIENCE:
            self.lost = self.lost or f"{doing}: {error.text}"
            return self._lost_error(self.lost)
        way_out = "look at the driver's log, or run the model on another device"
        if error.kind is ErrorKind.OUT_OF_MEMORY:
            way_out = "close other networks on it, or use a smaller model or batch"
        return DeviceError(f"{self._device} failed while {doing}: {error.text}; {way_out}")

    def refuse_if_lost(self) -> None:
        """Raise DeviceError if the device is lost."""
        if self.lost is not None:
            raise self._lost_error(self.lost)

    def _lost_error(self, reason: str) -> DeviceError:
        return DeviceError(
            f"{self._device} is lost ({reason}); restart the process, or load on another device",
            device=self._device,
        )
