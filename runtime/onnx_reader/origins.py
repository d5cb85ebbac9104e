"""Where each node of a model comes from, by its name, and which names are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Origin", "Origins"]


class Origin(NamedTuple):
    """What a node stands for: names of nodes of the file, and the metadata saved with them."""

    fused_from: tuple[str, ...]
    metadata: Mapping[str, str]


class Origins:
    """The origin of every named node, and the names that are taken."""

    def __init__(self) -> None:
        self._by_name: dict[str, Origin] = {}
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __getitem__(self, name: str) -> Origin:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __setitem__(self, name: str, origin: Origin) -> None:
        self._by_name[name] = origin

    def claim(self, name: str) -> bool:
        """Take a name; False if it is taken already."""
        if name in self._taken:
            return False
        self._taken.add(name)
        return True

    def claim_like(self, wanted: str, always_number: bool = False) -> str:
        """Take a name that is free: the wanted one, or that with ``_`` and a number."""
        if not always_number and self.claim(wanted):
            return wanted
        number = self._next.get(wanted, 0 if always_number else 1)
        while not self.claim(f"{wanted}_{number}"):
            number += 1
        self._next[wanted] = number + 1
        return f"{wanted}_{number}"
