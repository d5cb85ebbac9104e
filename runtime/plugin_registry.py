"""Which plugins there are, made lazily and at most once, and why one could not start."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import AioInferError, DeviceError, nearest
from .device_name import check_plugin_name
from .plugin import CoreHandle, Plugin

__all__ = ["ENTRY_POINT_GROUP", "MakePlugin", "PluginRegistry"]

ENTRY_POINT_GROUP = "aioinfer.backends"

MakePlugin = Callable[[CoreHandle, str], Plugin]
"""A Plugin class, or a function that makes one; called with the Core's handle and the name."""

_log = logging.getLogger("aioinfer")


@dataclass
class _Entry:
    load: Callable[[], MakePlugin]
    lock: threading.RLock = field(default_factory=threading.RLock)
    plugin: Plugin | None = None
    failure: AioInferError | None = None


class PluginRegistry:
    """The plugins of one Core: those of installed packages, and those registered by hand.

    Thread-safe; a plugin is made under a lock of its own, so one that starts slowly holds up nobody
    else.
    """

    def __init__(self, core: CoreHandle) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        for found in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            check_plugin_name(found.name)
            self._entries.setdefault(found.name, _Entry(found.load))

    @property
    def names(self) -> list[str]:
        """The registered names, sorted."""
        with self._lock:
            return sorted(self._entries)

    def register(self, name: str, make: MakePlugin) -> None:
        """Add a plugin under a name; raises DeviceError if the name is taken or no name."""
        check_plugin_name(name)
        with self._lock:
            if name in self._entries:
                raise DeviceError(
                    f"a plugin {name!r} is already registered; unregister it first, or choose "
                    f"another name"
                )
            self._entries[name] = _Entry(lambda: make)

    def unregister(self, name: str) -> None:
        """Close a plugin and forget it; raises DeviceError if it is not registered."""
        with self._lock:
            entry = self._entries.pop(name, None)
            known = list(self._entries)
        if entry is None:
            raise DeviceError(f"no plugin {name!r} is registered{nearest(name, known)}")
        with entry.lock:
            if entry.plugin is not None:
                entry.plugin.close()

    def get(self, name: str) -> Plugin:
        """Return the plugin, made on first use; raises DeviceError with the reason if it cannot be.

        A failure is remembered: a plugin that could not start is not tried again.
        """
        with self._lock:
            entry = self._entries.get(name)
            known = sorted(self._entries)
        if entry is None:
            hint = nearest(name, known) or f"; registered are {known}"
            raise DeviceError(f"unknown device {name!r}{hint}")
        with entry.lock:
            if entry.plugin is None and entry.failure is None:
                self._make(name, entry)
            if entry.failure is not None:
                raise entry.failure
            assert entry.plugin is not None
            return entry.plugin

    def _make(self, name: str, entry: _Entry) -> None:
        try:
            entry.plugin = entry.load()(self._core, name)
        except Exception as error:
            _log.info("plugin %s cannot start: %s", name, error)
            entry.failure = DeviceError(f"device {name} cannot start: {error}")
            entry.failure.__cause__ = error

    def made(self) -> list[Plugin]:
        """List the plugins that were made so far."""
        with self._lock:
            return [entry.plugin for entry in self._entries.values() if entry.plugin is not None]

    def failure_of(self, name: str) -> str | None:
        """Say why a plugin cannot start; None if it can."""
        try:
            self.get(name)
        except DeviceError as error:
            return str(error)
        return None
