"""A thread that plays the device: it fires the events of manual streams.

Manual streams give a test every order; a program with threads of its own wants a device that just
goes on. Here a thread fires what can be fired each time the host asks for an event, which it does
for the last one of each run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Self

from ...executors import ManualStreams
from ...executors.base import mark_own_thread

__all__ = ["DeviceThread"]


class DeviceThread:
    """Fires the events of these devices while the ``with`` block lasts, and at its end.

    With ``order`` the devices' streams take turns as drawn from it. What the devices record
    (``enqueued``, ``done``, ``watched``) is emptied, so that they can work for hours. Close the
    networks inside the block: their runs end on this thread. It raises at the end what firing has
    raised, because no function that an event calls may raise.
    """

    def __init__(
        self, devices: Sequence[ManualStreams], order: random.Random | None = None
    ) -> None:
        self._devices, self._order = devices, order
        self._wanted = threading.Event()
        self._is_over = False
        self._broken: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name="aioinfer.device", daemon=True)

    def __enter__(self) -> Self:
        for device in self._devices:
            device.when_watched = self._wanted.set
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over = True
        self._wanted.set()
        self._thread.join()
        for device in self._devices:
            device.when_watched = None
        if self._broken:
            raise self._broken[0]

    def _work(self) -> None:
        mark_own_thread()
        is_over = False
        while not is_over:
            self._wanted.wait()
            self._wanted.clear()  # before firing: what is watched from here on is seen next time
            is_over = self._is_over
            for device in self._devices:
                self._fire(device)

    def _fire(self, device: ManualStreams) -> None:
        try:
            device.fire_all(self._order)
        except BaseException as broken:  # kept for the end; the other runs must not hang
            self._broken.append(broken)
            self._wanted.set()
        for record in (device.enqueued, device.done, device.watched):
            record.clear()
