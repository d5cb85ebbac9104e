"""Constants that lie in their file: mapped, read when they are looked at, and forgotten again.

For a device that packs weights into layouts of its own. What it has packed need not be held a
second time, and is there again if another layout is wanted later. Elements lie at any address,
since files do not align them.

To look at a mapping of a file that has become shorter ends the process, by SIGBUS. So a reader of
an array *holds* it first: the system brings its pages, and says so if there are none. A file that
is cut short between that and the look still ends the process: what is looked at for long is read
into memory instead. A file that was written to since it was mapped is an error, as a replaced one
is none: it lives on for processes that have it open.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeGuard, TypeVar
from weakref import WeakSet, finalize

import numpy as np

from ...errors import ModelError
from .graph import Attribute, Graph
from .slabs import Slabs

__all__ = [
    "MappedFile",
    "Reading",
    "constants_held",
    "forget_pages",
    "hold_pages",
    "in_memory",
    "is_mapped",
    "mapped_files",
    "may_map",
    "read_constants",
]

Array = np.ndarray[Any, Any]
T = TypeVar("T")

_MADV_POPULATE_READ = 22  # of Linux 5.14
_FAR_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "ceph",
    "afs",
    "lustre",
    "virtiofs",
    "gpfs",
)


class MappedFile(mmap.mmap):
    """A file mapped for reading; it is unmapped when its last array is gone."""

    _name: str
    _descriptor: int
    _mark: tuple[int, ...]

    @classmethod
    def of(cls, file: IO[bytes]) -> MappedFile:
        """Map an open file, which may be closed afterwards; raises ValueError if it is empty."""
        made = cls(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        made._name = str(file.name)
        made._descriptor = os.dup(file.fileno())
        finalize(made, os.close, made._descriptor).atexit = False
        made._mark = _mark_of(made._descriptor)
        return made

    def part(self, start: int, end: int) -> Array:
        """See the bytes from start to end as a uint8 vector, read-only, at no cost."""
        part = np.frombuffer(self, np.uint8, end - start, start)
        part.flags.writeable = False
        return part

    def check(self) -> None:
        """Raise ModelError if the file was written to since it was mapped."""
        if _mark_of(self._descriptor) != self._mark:
            raise self._changed_error()

    def hold(self, start: int, end: int) -> None:
        """Have what lies there in memory; raises ModelError if the file is not what it was."""
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            self.madvise(_MADV_POPULATE_READ, first, end - first)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise MemoryError(f"{end - first >> 20} MiB of {self._name!r}") from error
            raise self._changed_error() from error
        self.check()

    def read_into(self, memory: memoryview, start: int) -> None:
        """Fill memory with what lies there, past the mapping; raises ModelError as ``hold``."""
        place = 0
        while place < len(memory):
            count = os.preadv(self._descriptor, [memory[place:]], start + place)
            if not count:
                raise self._changed_error()
            place += count
        self.check()

    def looked_at(self, look: Callable[[int], T | None]) -> T:
        """Return what a function finds by the file's descriptor, which it does not keep.

        Raises ModelError as ``hold``, also where it finds None: the file is too short.
        """
        found = look(self._descriptor)
        if found is None:
            raise self._changed_error()
        self.check()
        return found

    def forget(self, start: int, end: int) -> None:
        """Give memory back until it is looked at again: of whole pages, others may be in use."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE if end < len(self) else end
        if first < last:
            self.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _changed_error(self) -> ModelError:
        return ModelError(
            f"{self._name!r} was written to while it was loaded, or after that, and a network of "
            f"open shapes reads its weights again; load it anew. Replace files by a rename, which "
            f"leaves the old one to processes that have it open, or load with ENABLE_MMAP=False"
        )


def _mark_of(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def may_map(descriptor: int) -> bool:
    """True for a file on a disk of this machine that no other user may write to.

    And where the system can tell whether a mapping is still there.
    """
    found = os.fstat(descriptor)
    is_ours = found.st_uid in (0, os.geteuid()) if hasattr(os, "geteuid") else False
    is_closed = not found.st_mode & 0o022
    return is_ours and is_closed and _can_hold() and not _is_far(found.st_dev)


@cache
def _can_hold() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE) as page:
        try:
            page.madvise(_MADV_POPULATE_READ, 0, mmap.PAGESIZE)
        except OSError:  # a system that is older
            return False
    return True


def _is_far(device: int) -> bool:
    """True if another machine, or another program, is behind the file system."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except (OSError, ValueError):
        return False
    for line in lines:
        place, _, rest = line.partition(" - ")
        if place.split()[2:3] == [number]:
            return rest.startswith(_FAR_FILE_SYSTEMS)
    return False


def is_mapped(array: Array) -> bool:
    """True if the array is a view into a MappedFile."""
    return _file_of(array) is not None


def hold_pages(array: Array) -> None:
    """Have a mapped array in memory until it is forgotten; others are left alone.

    Raises ModelError if its file was written to, and MemoryError.
    """
    file = _file_of(array)
    if file is not None and array.nbytes:
        first, last = _range_in(file, array)
        file.hold(first, last)


class Reading:
    """Reads mapped arrays one after the other, into memory that it uses again; not thread-safe.

    Code that reads each array once, as packing does, so touches no page of the mapping, nor a new
    one of memory: for most of what that takes is spent on pages. There is room for ``size_bytes``
    from the first on, and for more when that comes.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        self._size_bytes = size_bytes
        self._memory = np.empty(0, np.uint8)

    def array(self, array: Array) -> Array:
        """Return the elements of an array, C-contiguous; those of a mapped one until the next call.

        Raises ModelError if its file was written to, and MemoryError.
        """
        file = _file_of(array)
        if file is None or not array.flags.c_contiguous or not array.nbytes:
            hold_pages(array)
            return np.require(array, requirements=["C", "A"])
        if self._memory.nbytes < array.nbytes:
            self._memory = Slabs().empty(max(array.nbytes, self._size_bytes))
        copy = self._memory[: array.nbytes]
        file.read_into(copy.data, _range_in(file, array)[0])
        return copy.view(array.dtype).reshape(array.shape)


def forget_pages(array: Array) -> None:
    """Give the memory of a mapped array back until it is looked at again; others are left alone."""
    file = _file_of(array)
    if file is not None and array.nbytes and array.flags.c_contiguous:
        file.forget(*_range_in(file, array))


def mapped_files(graph: Graph) -> list[MappedFile]:
    """List the files that constants of a graph are mapped from."""
    found = {id(file): file for array in _constants(graph) if (file := _file_of(array)) is not None}
    return list(found.values())


@contextmanager
def constants_held(graph: Graph) -> Iterator[None]:
    """Hold all mapped constants of a graph in the block, and forget what is left of them then.

    Raises ModelError if a file was written to, and MemoryError.
    """
    files = WeakSet(mapped_files(graph))  # the block may drop the graph, and so them
    try:
        for array in _constants(graph):
            hold_pages(array)
        yield
    finally:
        for file in files:
            file.forget(0, len(file))


def _constants(graph: Graph) -> Iterator[Array]:
    for value in graph.initializers.values():
        if value.constant is not None:
            yield value.constant
    for node in graph.nodes:
        for attribute in node.attributes.values():
            yield from _arrays(attribute)


def _arrays(attribute: Attribute) -> Iterator[Array]:
    if isinstance(attribute, Graph):
        yield from _constants(attribute)
    elif isinstance(attribute, np.ndarray):
        yield attribute
    elif _may_hold_arrays(attribute):
        for item in attribute:
            yield from _arrays(item)


def _may_hold_arrays(attribute: Attribute) -> TypeGuard[list[Attribute]]:
    """True for a list of arrays or graphs; long ones are of numbers."""
    return isinstance(attribute, list) and isinstance(
        next(iter(attribute), None), np.ndarray | Graph
    )


def _range_in(file: MappedFile, array: Array) -> tuple[int, int]:
    first = last = array.__array_interface__["data"][0] - file.part(0, 1).ctypes.data
    for length, stride in zip(array.shape, array.strides, strict=True):
        first += min(0, (length - 1) * stride)
        last += max(0, (length - 1) * stride)
    return first, last + array.itemsize


def read_constants(graph: Graph, slabs: Slabs | None = None) -> None:
    """Put copies in memory, aligned and read-only, for the mapped constants of a graph.

    Its bodies and attributes are searched, too. Values of one constant share one copy. Raises
    ModelError if a file was written to, and MemoryError.
    """
    _Reader(slabs or Slabs()).read(graph)


def in_memory(array: Array, slabs: Slabs | None = None) -> Array:
    """Return a copy of a mapped array, aligned and read-only.

    Raises ModelError if its file was written to, and MemoryError.
    """
    copy = (slabs or Slabs()).empty(array.nbytes).view(array.dtype).reshape(array.shape)
    _read_into(copy, array)
    copy.flags.writeable = False
    return copy


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
        elif _may_hold_arrays(attribute):
            return [self._attribute(item) for item in attribute]
        return attribute

    def _in_memory(self, array: Array) -> Array:
        if not is_mapped(array):
            return array
        address: int = array.__array_interface__["data"][0]
        key = address, array.dtype.str, array.shape, array.strides
        copy = self._copies.get(key)
        if copy is None:
            copy = self._copies[key] = in_memory(array, self._slabs)
        return copy


def _read_into(copy: Array, array: Array) -> None:
    file = _file_of(array)
    assert file is not None
    if array.flags.c_contiguous:
        file.read_into(copy.reshape(-1).view(np.uint8).data, _range_in(file, array)[0])
    else:
        hold_pages(array)
        copy[...] = array
        forget_pages(array)


def _file_of(array: Array) -> MappedFile | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, MappedFile) else None
