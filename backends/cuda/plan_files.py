"""Plans of libraries on disk, so that a model that was loaded before is loaded at once.

A plan of cuDNN is code, and its writer can run anything in this process. So only a folder is read
that is the user's own and that no other user can open. A file is one plan: a line of JSON, which
says what it is for and what the rest's digest is, and the blob. It comes into being under another
name and is then renamed, so that no reader sees a part of one. Whatever is wrong with a file, it is
as if it were not there. All plans of a library have a bound; the ones that were not read for
longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runtime.blobs.own_folder import has_owners, why_not_own_folder

__all__ = ["PlanFiles", "StoredPlan", "cache_folder", "own_cache_folder"]

_log = logging.getLogger("aioinfer")

_FORMAT = 1
_LIMIT_BYTES = 256 << 20  # some 3000 plans that cuDNN compiled, or 40,000 that it had
_LARGEST_BYTES = 16 << 20  # of one file; ten times what has been seen


@dataclass(frozen=True)
class StoredPlan:
    """A plan that was chosen; ``blob`` is what its library makes it of, ``name`` is for people.

    ``median_s`` is how long a run took, None if it was not measured; ``is_final`` says that all
    plans that there are have competed.
    """

    name: str
    workspace_bytes: int
    blob: bytes
    median_s: float | None
    is_final: bool


def cache_folder(environment: Mapping[str, str], home: Path) -> Path:
    """Name the folder of this user's caches: AIOINFER_CACHE_DIR, or where the system keeps them."""
    own = environment.get("AIOINFER_CACHE_DIR")
    if own:
        return Path(own)
    shared = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # a relative one is to be ignored, says the XDG specification
        return Path(shared) / "aioinfer"
    return home / ".cache" / "aioinfer"


def own_cache_folder() -> Path | None:
    """Return the folder of this user's caches; None for a user without a home."""
    try:
        return cache_folder(os.environ, Path.home())
    except RuntimeError:
        return None


class PlanFiles:
    """A library's plans for one environment: a kind of device, and versions.

    ``folder`` holds those of all libraries, each in a folder of its own; None keeps nothing.
    Thread-safe, also between processes. No method raises: what cannot be read or written is said in
    the log.
    """

    def __init__(
        self,
        folder: Path | None,
        library: str,
        environment: Mapping[str, str],
        limit_bytes: int = _LIMIT_BYTES,
    ) -> None:
        self._library, self._environment = library, dict(environment)
        self._limit_bytes, self._has_warned = limit_bytes, False
        said = json.dumps(self._environment, sort_keys=True).encode()
        place = hashlib.sha256(said).hexdigest()[:16]
        self._all = folder / f"{library}-plans" if folder is not None and has_owners() else None
        self._folder = self._all / place if self._all is not None else None

    def read(self, name: str) -> StoredPlan | None:
        """Read an operation's plan; None if there is no good one."""
        if self._folder is None or not self._is_own():
            return None
        path = self._path(self._folder, name)
        try:
            plan = self._parse(name, _content(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("ignoring the cached plan %s, which will be built again: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return plan

    def write(self, name: str, plan: StoredPlan) -> None:
        """Keep an operation's plan, in the place of an earlier one."""
        if self._folder is None:
            return
        path = self._path(self._folder, name)
        unfinished = path.with_suffix(f".{os.getpid()}-{os.urandom(4).hex()}")
        try:
            assert self._all is not None
            self._all.parent.mkdir(parents=True, exist_ok=True)
            self._all.mkdir(mode=0o700, exist_ok=True)
            if not self._is_own():
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                unfinished.write_bytes(self._text(name, plan))
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
            self._remove_oldest()
        except OSError as error:
            _log.warning("cannot keep a plan of %s in %s: %s", self._library, path, error)

    def forget(self, name: str) -> None:
        """Remove an operation's plan, which the library did not take."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._path(self._folder, name).unlink()

    def _path(self, folder: Path, name: str) -> Path:
        return folder / f"{name}.plan"

    def _is_own(self) -> bool:
        """True if the folder is there, and no other user can get at what is in it."""
        assert self._all is not None
        try:
            reason = why_not_own_folder(self._all)
        except OSError:
            return False
        if reason is not None:
            self._warn(reason)
        return reason is None

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "plans of %s are neither read from %s nor kept there: %s; set "
                "AIOINFER_CACHE_DIR to a folder of your own",
                self._library,
                self._all,
                reason,
            )

    def _parse(self, name: str, content: bytes) -> StoredPlan:
        line, _, blob = content.partition(b"\n")
        fields = json.loads(line)
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise ValueError("it is of another version")
        if fields["operation"] != name or fields["environment"] != self._environment:
            raise ValueError("it is for another operation, device or library")
        if fields["digest"] != hashlib.sha256(blob).hexdigest():
            raise ValueError("it is damaged")
        median_s = fields["median_s"]
        median_s = None if median_s is None else float(median_s)
        name, workspace_bytes = str(fields["name"]), int(fields["workspace_bytes"])
        return StoredPlan(name, workspace_bytes, blob, median_s, bool(fields["is_final"]))

    def _text(self, name: str, plan: StoredPlan) -> bytes:
        fields = {
            "format": _FORMAT,
            "operation": name,
            "environment": self._environment,
            "name": plan.name,
            "workspace_bytes": plan.workspace_bytes,
            "median_s": plan.median_s,
            "is_final": plan.is_final,
            "digest": hashlib.sha256(plan.blob).hexdigest(),
        }
        return json.dumps(fields).encode() + b"\n" + plan.blob

    def _remove_oldest(self) -> None:
        assert self._all is not None
        files = []
        for path in self._all.rglob("*"):
            with contextlib.suppress(OSError):  # another process has removed it
                found = path.lstat()
                if not stat.S_ISDIR(found.st_mode):
                    files.append((found.st_mtime_ns, found.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size


def _content(path: Path) -> bytes:
    """Read a whole file that is the user's own and no link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise ValueError("it is not this user's file")
        if found.st_size > _LARGEST_BYTES:
            raise ValueError(f"it has {found.st_size} bytes")
        return file.read(_LARGEST_BYTES)
