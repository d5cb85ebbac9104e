"""The devices that installed packages bring along, as their entry points name them."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points  # 45 ms that `import aioinfer` need not pay
from typing import Any

__all__ = ["ENTRY_POINT_GROUP", "installed_devices"]

ENTRY_POINT_GROUP = "aioinfer.backends"

_found: tuple[tuple[Any, ...], tuple[EntryPoint, ...]] | None = None
"""What was found last, after the state of the places where it was looked for."""


def installed_devices() -> tuple[EntryPoint, ...]:
    """Return the entry points of all devices, in the order of ``sys.path``.

    Each package's metadata is read, for milliseconds, where the places have changed since the last
    call: others on the path, or one where something was installed or removed. What is written later
    into a package's own folder, by an install that was under way, is seen at the next change.
    Thread-safe.
    """
    global _found
    places = _places()
    if _found is None or _found[0] != places:
        _found = places, tuple(entry_points(group=ENTRY_POINT_GROUP))
    return _found[1]


def _places() -> tuple[Any, ...]:
    return (*sys.meta_path, *((path, _state(path)) for path in sys.path))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path or os.curdir)
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
