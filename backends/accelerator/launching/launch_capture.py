"""LaunchGraph the launches of bound plans, and what is done where a driver refuses to.

A launch graph saves a run the enqueueing of each launch, and changes nothing else. So a driver that
cannot capture a plan costs the network its speed and not its use: the slot stays bound to the plan
without a launch graph, runs launch one by one, the log says so once, and a metric counts such
plans. The slot does not ask again for that plan, because a refusal is about what is launched, and
asking takes milliseconds. What is about the device, no room, no resources or no
device any more, is an error of the run, and the next run of the slot tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..queues.driver import DriverError, ErrorKind, LaunchGraph, Queue
from ..queues.opened_device import OpenedDevice

__all__ = ["LaunchCapture"]

_REFUSALS = (ErrorKind.OTHER, ErrorKind.WAITED_FOR_FAILURE)


class LaunchCapture:
    """Captures launches for the slots of one network, on a device that can. Thread-safe."""

    def __init__(self, device: OpenedDevice, network: str) -> None:
        self._device, self._network = device, network
        self._has_warned = False

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph | None:
        """Capture what ``enqueue`` launches; None where the driver refuses. Blocks a little.

        Raises DeviceError where that is for want of room or resources, or of a device. Nothing
        that ran for the launch graph is left on the device then either.
        """
        try:
            return self._device.capture(enqueue)
        except DriverError as error:
            what = f"capturing the launches of a slot of {self._network!r}"
            if error.kind not in _REFUSALS:
                raise self._device.health.translate(error, what) from error
            self._warn(f"{self._device.name} refused {what}: {error.text}")
            return None

    def _warn(self, refusal: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logging.getLogger(f"aioinfer.{self._device.name}").warning(
                "%s; they are enqueued one by one, which takes the host longer", refusal
            )
