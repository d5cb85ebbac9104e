"""Which devices models of this process have, and with which priority; see MODEL_PRIORITY."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from .properties import PRIORITIES

__all__ = ["held_devices", "hold"]


class HoldingNetwork(Protocol):
    """What is asked of a network."""

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """The devices that compute for it."""

    @property
    def is_closed(self) -> bool:
        """True once it was closed."""


_lock = threading.Lock()
_holders: list[tuple[weakref.ref[HoldingNetwork], str]] = []


def hold(network: HoldingNetwork, priority: str) -> None:
    """Note a network that AUTO has loaded, with its priority; only those above the lowest count."""
    if priority == PRIORITIES[0]:
        return
    with _lock:
        _holders[:] = [entry for entry in _holders if _open(entry[0]) is not None]
        _holders.append((weakref.ref(network), priority))


def held_devices() -> dict[str, str]:
    """Return the highest priority that each device has now, by its name and by that of its kind."""
    held: dict[str, str] = {}
    with _lock:
        holders = list(_holders)
    for known, priority in holders:
        network = _open(known)
        for device in () if network is None else network.execution_devices:
            for name in (device, device.partition(".")[0]):
                held[name] = max(priority, held.get(name, priority), key=PRIORITIES.index)
    return held


def _open(known: weakref.ref[HoldingNetwork]) -> HoldingNetwork | None:
    network = known()
    return None if network is None or network.is_closed else network
