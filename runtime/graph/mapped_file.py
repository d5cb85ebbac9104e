"""Constants that lie in their file: mapped, read when they are looked at, and forgotten again.

For a device that packs weights into layouts of its own. What it has packed need not be held a
second time, and is there again if another layout is wanted later. The file has to stay as it is
while an array of it lives. Elements lie at any address, since files do not align them.
"""

from __future__ import annotations

import mmap
from typing import IO, Any

import numpy as np

from .graph import Attribute, Graph
from .slabs import Slabs

__all__ = ["MappedFile", "forget_pages", "is_mapped", "read_constants"]

Array = np.ndarray[Any, Any]


class MappedFile(mmap.mmap):
    """A file mapped for reading; it is unmapped when its last array is gone."""

    @classmethod
    def of(cls, file: IO[bytes]) -> MappedFile:
        """Map an open file, which may be closed afterwards; raises ValueError if it is empty."""
        return cls(file.fileno(), 0, access=mmap.ACCESS_READ)

    def part(self, start: int, end: int) -> Array:
        """See the bytes from start to end as a uint8 vector, read-only, at no cost."""
        return np.frombuffer(self, np.uint8, end - start, start)


def is_mapped(array: Array) -> bool:
    """True if the array is a view into a MappedFile."""
    return _file_of(array) is not None


def forget_pages(array: Array) -> None:
    """Give the memory of a mapped array back until it is looked at again; others are left alone."""
    file = _file_of(array)
    if file is None or not hasattr(mmap, "MADV_DONTNEED") or not array.nbytes:
        return
    first = array.__array_interface__["data"][0] - file.part(0, 1).ctypes.data
    start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages only: others may be in use
    end = (first + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < end and array.flags.c_contiguous:
        file.madvise(mmap.MADV_DONTNEED, start, end - start)


def read_constants(graph: Graph, slabs: Slabs | None = None) -> None:
    """Put copies in memory, aligned and read-only, for the mapped constants of a graph.

    Its bodies and attributes are searched, too. Values of one constant share one copy. Raises
    MemoryError.
    """
    _Reader(slabs or Slabs()).read(graph)


class _Reader:
    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self._copies: dict[tuple[int, str, tuple[int, ...], tuple[int, ...]], Array] = {}

    def read(self, graph: Graph) -> None:
        for value in graph.initializers.values():
            if value.constant is not None:
                value.constant = self._in_memory(value.constant)
        for node in graph.nodes:
            for key, item in node.attributes.items():
                node.attributes[key] = self._attribute(item)

    def _attribute(self, attribute: Attribute) -> Attribute:
        if isinstance(attribute, Graph):
            self.read(attribute)
        elif isinstance(attribute, np.ndarray):
            return self._in_memory(attribute)
        elif isinstance(attribute, list):
            return [self._attribute(item) for item in attribute]
        return attribute

    def _in_memory(self, array: Array) -> Array:
        if not is_mapped(array):
            return array
        address: int = array.__array_interface__["data"][0]
        key = address, array.dtype.str, array.shape, array.strides
        copy = self._copies.get(key)
        if copy is None:
            copy = self._slabs.empty(array.nbytes).view(array.dtype).reshape(array.shape)
            copy[...] = array
            copy.flags.writeable = False
            self._copies[key] = copy
        return copy


def _file_of(array: Array) -> MappedFile | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, MappedFile) else None
