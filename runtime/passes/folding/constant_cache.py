"""Weights computed from weights, each once for all plans of a network."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ConstantCache"]


@dataclass(slots=True)
class _Entry:
    sources: tuple[np.ndarray, ...]
    result: weakref.ref[np.ndarray]
    identity: int
    held: np.ndarray | None
    compute_again: Callable[[], np.ndarray] | None


class ConstantCache:
    """Gives the same array object for the same operation on the same arrays.

    What packs weights knows them by their array, so a pass that runs again for the next plan must
    not make a new one. Keeps the sources, so that nothing else takes their identity, and the
    results, but for those that may go: they go with the last who uses them. It lives as long as the
    network and holds no more than the operations on its weights. Thread-safe; two threads that want
    the same result compute it once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._keys: dict[int, Hashable] = {}
        """Of results, by identity; those of arrays that are gone may name another one."""

    def get(
        self,
        operation: Hashable,
        sources: Sequence[np.ndarray],
        compute: Callable[[], np.ndarray],
        *,
        may_go: bool = False,
    ) -> np.ndarray:
        """Find the result of an operation on these arrays, or compute it; it is read-only.

        ``operation`` tells apart what is done with the same arrays. ``compute`` runs under the
        lock; if it raises, nothing is kept. Where the result ``may_go`` it runs again when a result
        that has gone is wanted; it is kept for that, and so may hold no more than the sources.
        """
        key = (operation, tuple(map(id, sources)))
        with self._lock:
            known = self._entries.get(key)
            array = None if known is None else known.result()
            if array is None:
                array = self._add(key, tuple(sources), compute, compute if may_go else None)
            return array

    def key_of(self, array: np.ndarray) -> Hashable | None:
        """Return what a result stays known by when its array is gone; None for other arrays."""
        with self._lock:
            key = self._keys.get(id(array))
            known = self._entries.get(key)
            return key if known is not None and known.result() is array else None

    def again(self, key: Hashable) -> np.ndarray | None:
        """Return the result of a key, computed again if it has gone; None for unknown keys.

        Raises what the computation does.
        """
        with self._lock:
            known = self._entries.get(key)
            array = None if known is None else known.result()
            if array is None and known is not None and known.compute_again is not None:
                again = known.compute_again
                array = self._add(key, known.sources, again, again)
            return array

    def _add(
        self,
        key: Hashable,
        sources: tuple[np.ndarray, ...],
        compute: Callable[[], np.ndarray],
        compute_again: Callable[[], np.ndarray] | None,
    ) -> np.ndarray:
        result = compute().view()
        result.flags.writeable = False
        before = self._entries.get(key)
        if before is not None and self._keys.get(before.identity) == key:
            del self._keys[before.identity]
        held = result if compute_again is None else None
        self._entries[key] = _Entry(sources, weakref.ref(result), id(result), held, compute_again)
        self._keys[id(result)] = key
        return result

    def __repr__(self) -> str:
        with self._lock:
            results = [entry.result() for entry in self._entries.values()]
        found = [array for array in results if array is not None]
        return f"<ConstantCache {len(found)} arrays, {sum(array.nbytes for array in found)} bytes>"
