"""How many runs come to a network, and in batches of which size."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .durations import COUNT_AT

if TYPE_CHECKING:
    from ..tensors.tensor import Port

__all__ = ["EXACT_BATCH_SIZES", "Arrivals"]

EXACT_BATCH_SIZES = 1024  # that many are counted each by itself


class Arrivals:
    """Counts runs that come by the lengths of their first dimension. Thread-safe."""

    def __init__(self) -> None:
        self._shapes: deque[Any] = deque()
        self._count = 0
        self._sizes: dict[int, int] = {}
        self._input = ""
        self._fixed_size: int | None = None
        self.has_open_batch = False
        """Runs come in batches of any size, which :meth:`arrive` tells from each."""
        self.fixed_count = 0
        """How many runs came otherwise; counted by the admission, under its lock."""
        self._included: list[Arrivals] = []
        self._lock = threading.Lock()

    def count_batches_of(self, ports: Sequence[Port]) -> None:
        """Take the batch size of a run from the first of these inputs that has dimensions.

        Called before the first run; otherwise none is counted.
        """
        for port in ports:
            if port.shape:
                length = port.shape[0]
                if isinstance(length, int):
                    self._fixed_size = length
                else:
                    self._input, self.has_open_batch = port.name, True
                return

    def include(self, other: Arrivals) -> None:
        """Count the arrivals of another as well, which are not reported here; before the first run.

        Both take the batch size from the same input.
        """
        self._included.append(other)

    def arrive(self, inputs: Mapping[str, Any]) -> None:
        """Count a run by its size; called once for each of an open batch."""
        shapes = self._shapes
        shapes.append(getattr(inputs.get(self._input), "shape", ()))
        if len(shapes) >= COUNT_AT:
            with self._lock:
                self._count_kept()

    def arrive_together(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        """Count runs of an open batch that others have brought here together, of plain arrays."""
        name, shapes = self._input, self._shapes
        if self.has_open_batch:
            shapes.extend([given[name].shape for given in inputs])
        else:
            shapes.extend([()] * len(inputs))
        if len(shapes) >= COUNT_AT:
            with self._lock:
                self._count_kept()

    def terms(
        self, inputs: Mapping[str, Any]
    ) -> tuple[tuple[tuple[Callable[[Any], None], Any], ...], tuple[tuple[object, str], ...]]:
        """Return how native code notes runs like this one: calls, and attributes that count them.

        Of runs that come otherwise at times too, by which what was noted is counted.
        """
        if self.has_open_batch:
            return ((self._shapes.append, inputs[self._input].shape),), ()
        return (), ((self, "fixed_count"),)

    @property
    def count(self) -> int:
        """How many runs have come; the admission asks under its lock."""
        with self._lock:
            own_count = self.fixed_count + self._count + len(self._shapes)
        return own_count + sum([other.count for other in self._included])

    def batch_sizes(self) -> dict[int, int]:
        """Return how many runs came with which batch size, smallest first.

        With EXACT_BATCH_SIZES of them, further ones count as the power of two below.
        """
        with self._lock:
            self._count_kept()
            sizes = Counter(self._sizes)
        for other in self._included:
            sizes.update(other.batch_sizes())
        if self._fixed_size is None:
            return dict(sorted(sizes.items()))
        count = self.count
        return {self._fixed_size: count} if count else {}

    def _count_kept(self) -> None:
        shapes = [self._shapes.popleft() for _ in range(len(self._shapes))]
        self._count += len(shapes)
        sizes = self._sizes
        for size, count in Counter([shape[0] for shape in shapes if shape]).items():
            is_exact = size in sizes or len(sizes) < EXACT_BATCH_SIZES
            place = size if is_exact else _rounded_down(size)
            sizes[place] = sizes.get(place, 0) + count


def _rounded_down(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size else 0
