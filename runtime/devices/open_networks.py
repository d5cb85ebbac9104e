"""The networks that a Core has loaded and that are still in use."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...errors import ClosedError

if TYPE_CHECKING:
    from ..network.executable_network import ExecutableNetwork

__all__ = ["OpenNetworks"]

_Label = tuple[str, str, int]
"""The name, the device and the copy of a network."""


class OpenNetworks:
    """Networks of one Core, held weakly, in the order of their loading. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._networks: WeakValueDictionary[int, ExecutableNetwork] = WeakValueDictionary()
        self._numbers = itertools.count()
        self._labelled: WeakValueDictionary[_Label, ExecutableNetwork] = WeakValueDictionary()
        self._is_ended = False

    def keep(self, network: ExecutableNetwork) -> None:
        """Add a network and number its copy; one that comes after ``end`` is closed.

        Raises ClosedError then.
        """
        with self._lock:
            if not self._is_ended:
                label = network.name, network.device, network.copy
                if self._labelled.get(label) is not network:  # AUTO returns what this Core loaded
                    network.copy = self._free_copy(network)
                    self._labelled[network.name, network.device, network.copy] = network
                    self._networks[next(self._numbers)] = network
                return
        network.close()
        raise ClosedError("this Core was closed while the network was loaded; make a new one")

    def _free_copy(self, network: ExecutableNetwork) -> int:
        """Return the lowest number that no other open network of the same name and device has."""
        number = 1
        while (other := self._labelled.get((network.name, network.device, number))) is not None:
            if other.is_closed:
                break
            number += 1
        return number

    def shown(self) -> list[ExecutableNetwork]:
        """List those that are open and no part of another."""
        with self._lock:
            networks = list(self._networks.values())
        return [known for known in networks if not (known.is_part or known.is_closed)]

    def end(self) -> list[ExecutableNetwork]:
        """Take no more; list those that are left, in the order in which they are to be closed."""
        with self._lock:
            self._is_ended = True
            networks = list(self._networks.values())
        # Outer networks were made after those that they use, or load more as they go. Of them those
        # that nobody waits for go first: closing the others may take as long as their runs.
        networks.reverse()
        networks.sort(key=lambda network: (network.is_part, bool(network.admission.runs)))
        return networks
