"""A folder of this user's, whose files are replaced whole and of which the oldest go first."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import BlobError
from .writer import write_file

__all__ = ["CacheFolder"]

_log = logging.getLogger("aioinfer")

_ABANDONED_S = 3600.0
"""From here on what a writer has begun and not finished is taken to be left behind."""


class CacheFolder:
    """Files by name, in a folder that no other user can get at. Safe for threads and processes.

    ``limit_bytes`` bounds all files together; those that were not used for longest go first. No
    method raises: what cannot be read or written is said in the log, and is as if not there.
    """

    def __init__(self, folder: Path, ending: str, limit_bytes: int) -> None:
        self._folder, self._ending, self._limit_bytes = folder, ending, limit_bytes

    def find(self, name: str) -> Path | None:
        """Return the file of this name, as one that was used now; None if there is none."""
        path = self._path(name)
        try:
            if not path.is_file() or not self._is_own(path):
                return None
        except (OSError, ValueError) as error:
            _log.warning("cannot look for %s: %s", path, error)
            return None
        with suppress(OSError):
            os.utime(path)
        return path

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> bool:
        """Put a file in the place of an earlier one, if there is one; False if it cannot be."""
        path = self._path(name)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_own(self._folder):
                return False
            write_file(path, iter(chunks))
        except (OSError, ValueError, BlobError) as error:
            _log.warning("cannot keep %s: %s", path, error)
            return False
        self._make_room(path)
        return True

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
        if not hasattr(os, "getuid"):  # without users' ids there is nothing to compare
            return True
        for place, forbidden in ((self._folder, 0o077), (path, 0o022)):
            try:
                found = os.lstat(place)
            except OSError:
                return False
            if found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode):
                _log.warning("%s is not this user's, and is not used as a cache", place)
                return False
            if found.st_mode & forbidden:
                _log.warning(
                    "others can get at %s, which is not used as a cache; its mode has to be %s",
                    place,
                    "700" if forbidden == 0o077 else "600",
                )
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
                    files.append((found.st_mtime, found.st_size, Path(entry.path)))
        with suppress(OSError):
            left = self._limit_bytes - latest.stat().st_size
            for _, size_bytes, path in sorted(files, reverse=True):
                left -= size_bytes
                if left < 0:
                    with suppress(OSError):
                        path.unlink()
