"""Regions of the system's shared memory that clients register, below a prefix.

They are opened and never mapped: a client may cut its region short at any time, and touching a
mapping beyond the end of its file ends the process. Reading and writing copy, and raise there.
"""

from __future__ import annotations

import os
import re
import stat
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from anyio import to_thread

from ..errors import PropertyError
from .protocol.call import InferCall, with_shared
from .protocol.in_flight import BodyShare
from .protocol.limits import AT_ONCE_BYTES, Limits
from .protocol.refusal import RefusedError

__all__ = ["RegionState", "SharedRegions", "loaded"]

FOLDER = Path("/dev/shm")
"""Where shared memory objects of POSIX are, by their keys."""

_PREFIX = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._-]*")
_LONGEST_NAME = 256
_LONGEST_KEY = 255  # of a file's name
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RegionState(NamedTuple):
    """A region as it was registered; offset and size in bytes."""

    name: str
    key: str
    offset: int
    byte_size: int


class SharedRegions:
    """What clients have registered, by name.

    prefixes: what keys must begin with, one of them, with or without the slash in front. Raises
    PropertyError for one that is empty or no part of a key. Used on one event loop; places on any
    thread.
    """

    def __init__(self, prefixes: Sequence[str], limits: Limits, *, folder: Path = FOLDER) -> None:
        for prefix in prefixes:
            if not _PREFIX.fullmatch(prefix):
                raise PropertyError(
                    f"{prefix!r} is no prefix of keys of shared memory: letters, digits, '_', '-' "
                    f"and '.' are wanted, after a slash or without it"
                )
        self._prefixes, self._folder = tuple(each.lstrip("/") for each in prefixes), folder
        self._limit_count = limits.region_count
        self._regions: dict[str, _Region] = {}

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Open a region. Raises RefusedError for a name that is taken, and for what is none."""
        if not name or len(name) > _LONGEST_NAME:
            raise RefusedError(f"1 to {_LONGEST_NAME} characters are wanted", field="name")
        if name in self._regions:
            raise RefusedError(f"region {name!r} is registered already", field="name")
        if len(self._regions) >= self._limit_count:
            text = f"{len(self._regions)} regions are registered, as many as may be"
            raise RefusedError(text, status=503)
        if not size:
            raise RefusedError("1 or more is wanted", field="byte_size")
        file = self._opened(key)
        region = _Region(RegionState(name, key, offset, size), file)
        if region.file_bytes() < offset + size:
            text = f"bytes {offset} to {offset + size} are not all in {key!r}"
            raise RefusedError(text, field="byte_size")
        self._regions[name] = region

    def _opened(self, key: str) -> int:
        """Open the object of a key; nothing but a file of one name, in that folder itself."""
        file_name = key.lstrip("/")
        if not file_name.startswith(self._prefixes):
            words = " or ".join(map(repr, self._prefixes))
            raise RefusedError(f"begins with another prefix than {words}", field="key")
        is_name = "/" not in file_name and "\0" not in file_name
        try:
            if not is_name or len(file_name.encode()) > _LONGEST_KEY:
                raise RefusedError("is no key of shared memory", field="key")
            file = os.open(self._folder / file_name, _FLAGS)
        except (OSError, UnicodeEncodeError):
            raise RefusedError("cannot be opened for reading and writing", field="key") from None
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                raise RefusedError("is no shared memory of this name alone", field="key")
        except BaseException:
            os.close(file)
            raise
        return file

    def unregister(self, name: str = "") -> None:
        """Forget a region that is there, or all; requests under way keep theirs."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def states(self, name: str = "") -> Sequence[RegionState]:
        """Return one region, or all. Raises RefusedError for one that is not there."""
        if not name:
            return [region.state for region in self._regions.values()]
        return [self._found(name, "name").state]

    def place(self, region: str, offset: int, size: int, field: str) -> _Place:
        """Find bytes of a region. Raises RefusedError for what is not within one."""
        found = self._found(region, field)
        if offset + size > found.state.byte_size:
            text = f"bytes {offset} to {offset + size} are not all in the region's"
            raise RefusedError(f"{text} {found.state.byte_size}", field=field)
        return _Place(found, offset, size, field)

    def _found(self, name: str, field: str) -> _Region:
        region = self._regions.get(name)
        if region is None:
            raise RefusedError(f"no region {name!r} is registered", field=field)
        return region


class _Region:
    """An open file, closed with the last reference to it."""

    def __init__(self, state: RegionState, file: int) -> None:
        self.state, self.file = state, file
        weakref.finalize(self, os.close, file)

    def file_bytes(self) -> int:
        return os.fstat(self.file).st_size


@dataclass(frozen=True)
class _Place:
    """A Place in a region; its offset is from the region's beginning."""

    _region: _Region
    offset: int
    size: int
    _field: str

    @property
    def region(self) -> str:
        return self._region.state.name

    def read(self) -> memoryview:
        memory = np.empty(self.size, np.uint8).data
        start, place = self._region.state.offset + self.offset, 0
        while place < self.size:
            try:
                count = os.preadv(self._region.file, [memory[place:]], start + place)
            except OSError:
                count = 0
            if not count:
                raise self._is_gone()
            place += count
        return memory

    def write(self, data: memoryview) -> None:
        if data.nbytes > self.size:
            text = f"the output has {data.nbytes} bytes, and its place {self.size}"
            raise RefusedError(text, field=self._field)
        start, place = self._region.state.offset + self.offset, 0
        if self._region.file_bytes() < start + data.nbytes:
            raise self._is_gone()
        while place < data.nbytes:
            try:
                place += os.pwrite(self._region.file, data[place:], start + place)
            except OSError:
                raise self._is_gone() from None

    def _is_gone(self) -> RefusedError:
        return RefusedError("the memory is not there any more", field=self._field)


async def loaded(call: InferCall, share: BodyShare, limits: Limits) -> InferCall:
    """Return a call with what it has in shared memory, which counts as a body.

    Long ones are read on a thread. Raises RefusedError, also for more than a body may have.
    """
    size = sum(each.place.size for each in call.shared)
    if size > limits.body_bytes:
        text = f"{size} bytes of shared memory; at most {limits.body_bytes} are taken"
        raise RefusedError(text, status=413)
    share.take(size)
    read = partial(with_shared, call)
    return read() if size <= AT_ONCE_BYTES else await to_thread.run_sync(read)
