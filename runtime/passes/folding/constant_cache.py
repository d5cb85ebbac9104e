"""Weights computed from weights, each once for all plans of a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence

import numpy as np

__all__ = ["ConstantCache"]


class ConstantCache:
    """Gives the same array object for the same operation on the same arrays.

    What packs weights knows them by their array, so a pass that runs again for the next plan must
    not make a new one. Keeps the sources, so that nothing else takes their identity, and the
    results; it lives as long as the network and holds no more than the operations on its weights.
    Thread-safe; two threads that want the same result compute it once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, tuple[tuple[np.ndarray, ...], np.ndarray]] = {}

    def get(
        self, operation: Hashable, sources: Sequence[np.ndarray], compute: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Find the result of an operation on these arrays, or compute it; it is read-only.

        ``operation`` tells apart what is done with the same arrays. ``compute`` runs under the
        lock; if it raises, nothing is kept.
        """
        key = (operation, tuple(map(id, sources)))
        with self._lock:
            known = self._results.get(key)
            if known is None:
                result = compute().view()
                result.flags.writeable = False
                known = self._results[key] = (tuple(sources), result)
            return known[1]

    def __repr__(self) -> str:
        with self._lock:
            sizes = [result.nbytes for _, result in self._results.values()]
        return f"<ConstantCache {len(sizes)} arrays, {sum(sizes)} bytes>"
