"""The devices that installed packages bring along, as their entry points name them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from ...executors.late_imports import late_imports
from .installed_packages import importlib_failures_named, metadata_folders, metadata_text

__all__ = ["ENTRY_POINT_GROUP", "InstalledDevice", "installed_devices"]

ENTRY_POINT_GROUP = "aioinfer.backends"


class InstalledDevice(NamedTuple):
    """An entry point: the device's name, and ``module:attribute`` of what makes its plugin."""

    name: str
    value: str

    def load(self) -> Any:
        """Import what makes the plugin; raises what that raises."""
        module, _, attribute = self.value.partition("[")[0].partition(":")
        names = [name.strip() for name in attribute.split(".") if name.strip()]
        with late_imports:
            return functools.reduce(getattr, names, import_module(module.strip()))


_found: tuple[tuple[Any, ...], tuple[InstalledDevice, ...]] | None = None
"""What was found last, after the state of the places where it was looked for."""


def installed_devices() -> tuple[InstalledDevice, ...]:
    """Return the entry points of all devices, in the order of ``sys.path``.

    Each package's metadata is read, for milliseconds, where the places have changed since the last
    call: others on the path, or one where something was installed or removed. What is written later
    into a package's own folder, by an install that was under way, is seen at the next change.
    Thread-safe. Raises DeviceError where others' finders fail, OSError for want of files or memory.
    """
    global _found
    places = _places()
    if _found is None or _found[0] != places:
        _found = places, tuple(_look())
    return _found[1]


def _look() -> Iterator[InstalledDevice]:
    folders = metadata_folders()
    if folders is None:
        with late_imports:
            from importlib.metadata import entry_points

        with importlib_failures_named():
            points = list(entry_points(group=ENTRY_POINT_GROUP))
        for point in points:
            yield InstalledDevice(point.name, point.value)
        return
    for folder in folders.values():
        text = metadata_text(folder, "entry_points.txt")
        if ENTRY_POINT_GROUP in text:
            yield from _entries(text)


def _entries(text: str) -> Iterator[InstalledDevice]:
    """Read the file of a package's entry points, and leave out those of other groups."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
        elif group == ENTRY_POINT_GROUP and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield InstalledDevice(name.strip(), value.strip())


def _places() -> tuple[Any, ...]:
    return (*sys.meta_path, *((path, _state(path)) for path in sys.path))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path or os.curdir)
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
