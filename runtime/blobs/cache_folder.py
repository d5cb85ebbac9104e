"""A folder of this user's, whose files are replaced whole and of which the oldest go first."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...errors import BlobError
from ...executors.late_imports import late_imports
from .own_folder import why_not_own_file, why_not_own_folder
from .writer import write_file

__all__ = ["CacheFolder"]

_log = logging.getLogger("aioinfer")

_ABANDONED_S = 3600.0
"""From here on what a writer has begun and not finished is taken to be left behind."""


class CacheFolder:
    """Files by name, in a folder that no other user can get at. Safe for threads and processes.

    ``limit_bytes`` bounds all files together; those that were not used for longest go first, and
    one that is larger is not kept. No method raises: what cannot be read or written is said in the
    log, and is as if not there.
    """

    def __init__(self, folder: Path, ending: str, limit_bytes: int) -> None:
        self._folder, self._ending, self._limit_bytes = folder, ending, limit_bytes

    def find(self, name: str) -> Path | None:
        """Return the file of this name, as one that was used now; None if there is none."""
        path = self._path(name)
        try:
            if not path.exists() or not self._is_own(path):
                return None
        except (OSError, ValueError) as error:
            _log.warning("cannot look for %s: %s", path, error)
            return None
        _note_use(path)
        return path

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> bool:
        """Put a file in the place of an earlier one, if there is one; False if it cannot be."""
        path = self._path(name)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = why_not_own_folder(self._folder)
            if reason is not None:
                raise BlobError(f"{str(self._folder)!r} is not used as a cache: {reason}")
            write_file(path, _bounded(chunks, self._limit_bytes))
        except (OSError, ValueError, BlobError) as error:
            _log.warning("cannot keep %s: %s", path, error)
            return False
        self._make_room(path)
        return True

    def mark(self, name: str) -> tuple[int, ...] | None:
        """Tell a file from those that come in its place; None if there is none."""
        try:
            found = self._path(name).stat()
        except (OSError, ValueError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def held(self, name: str, mark: tuple[int, ...] | None) -> Iterator[bool]:
        """Hold a file against other writers; False without waiting if one has it, or it is gone.

        So it is if another one is in its place: this is not the one that ``mark`` is of.
        """
        path = self._path(name)
        try:
            opened = path.open("rb") if self._is_own(path) else None
        except OSError:
            opened = None
        if opened is None:
            yield False
            return
        with opened:
            yield _is_locked(opened.fileno()) and self.mark(name) == mark

    def forget(self, name: str, reason: object) -> None:
        """Remove a file that is of no use."""
        path = self._path(name)
        with suppress(OSError):
            path.unlink()
            _log.warning("removed %s: %s", path, reason)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{self._ending}"

    def _is_own(self, path: Path) -> bool:
        """True if folder and file are this user's, and others cannot write to them."""
        for place, why in ((self._folder, why_not_own_folder), (path, why_not_own_file)):
            try:
                reason = why(place)
            except OSError:
                return False
            if reason is not None:
                _log.warning("%s is not used as a cache: %s", place, reason)
                return False
        return True

    def _make_room(self, latest: Path) -> None:
        """Remove the files that were not used for longest, and what dead writers left behind."""
        files: list[tuple[float, int, Path]] = []
        abandoned_at = time.time() - _ABANDONED_S
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if entry.name.startswith(".") and self._ending in entry.name:
                    if found.st_mtime < abandoned_at:
                        os.unlink(entry.path)
                elif entry.name.endswith(self._ending) and Path(entry.path) != latest:
                    files.append((found.st_atime, found.st_size, Path(entry.path)))
        with suppress(OSError):
            left = self._limit_bytes - latest.stat().st_size
            for _, size_bytes, path in sorted(files, reverse=True):
                left -= size_bytes
                if left < 0:
                    with suppress(OSError):
                        path.unlink()


def _bounded(chunks: Iterable[bytes | memoryview], limit_bytes: int) -> Iterator[Any]:
    """Yield chunks; raises BlobError before there are more bytes than that."""
    left = limit_bytes
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise BlobError(
                f"it alone has more than the {limit_bytes} bytes of the cache; raise "
                f"CACHE_LIMIT_BYTES"
            )
        yield chunk


def _note_use(path: Path) -> None:
    """Set when a file was read last, and leave when it was written, which tells readers of more."""
    with suppress(OSError), path.open("rb") as file:  # the same file, even if a process renames now
        written_ns = os.fstat(file.fileno()).st_mtime_ns
        os.utime(
            file.fileno() if os.utime in os.supports_fd else path, ns=(time.time_ns(), written_ns)
        )


def _is_locked(descriptor: int) -> bool:
    """Lock a file until it is closed; False if another process has it."""
    try:
        with late_imports:
            import fcntl
    except ImportError:  # not a system with such locks
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
