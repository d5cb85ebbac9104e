"""What is free in an arena between blocks of memory that are taken. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["Holes"]


class Holes:
    """Free places in an arena, by size and by offset; neighbours become one. O(log n) a call."""

    def __init__(self) -> None:
        self._by_size: list[tuple[int, int]] = []  # size, offset; sorted
        self._sizes: dict[int, int] = {}  # by offset
        self._starts: dict[int, int] = {}  # offset by end

    def add(self, offset: int, size: int) -> None:
        """Free a place."""
        if offset in self._starts:
            before = self._starts[offset]
            size += self._drop(before)
            offset = before
        if offset + size in self._sizes:
            size += self._drop(offset + size)
        self._sizes[offset], self._starts[offset + size] = size, offset
        insort(self._by_size, (size, offset))

    def take(self, size: int) -> int | None:
        """Take memory from the smallest hole that has so much; None if no hole has."""
        at = bisect_left(self._by_size, (size, 0))
        if at == len(self._by_size):
            return None
        offset = self._by_size[at][1]
        left = self._drop(offset) - size
        if left:
            self.add(offset + size, left)
        return offset

    def _drop(self, offset: int) -> int:
        size = self._sizes.pop(offset)
        del self._starts[offset + size]
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        return size
