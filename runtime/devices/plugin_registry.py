"""Which plugins there are, made lazily and at most once, and why one could not start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import ClosedError, DeviceError, nearest
from ...executors import check_files, find_shortage, shortage_as_error
from ...executors.late_imports import late_imports
from .device_aliases import what_is_meant
from .device_name import check_plugin_name
from .plugin import CoreHandle, Plugin

if TYPE_CHECKING:
    from ...executors import ExecutorManager
    from .installed_devices import InstalledDevice

__all__ = ["MakePlugin", "PluginRegistry", "closed_core"]

MakePlugin = Callable[[CoreHandle, str], Plugin]
"""A Plugin class, or a function that makes one; called with the Core's handle and the name."""

_log = logging.getLogger("aioinfer")


class _Entry:
    __slots__ = ("failure", "is_gone", "load", "lock", "plugin")

    def __init__(self, load: Callable[[], MakePlugin]) -> None:
        self.load, self.lock = load, threading.RLock()
        self.plugin: Plugin | None = None
        self.failure: Exception | None = None
        self.is_gone = False


class PluginRegistry:
    """The plugins of one Core: those of installed packages, and those registered by hand.

    Thread-safe; a plugin is made under a lock of its own, so one that starts slowly holds up no
    other.
    """

    def __init__(self, core: CoreHandle) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._unregistered: list[Plugin] = []
        self._is_closed = False
        doing = "looking for installed devices"
        check_files(doing)
        with shortage_as_error(doing):
            with late_imports:
                from .installed_devices import installed_devices  # `import aioinfer` needs none

            for found in installed_devices():
                self._add_installed(found)

    def _add_installed(self, found: InstalledDevice) -> None:
        """Add what a package brings along; a package with a mistake costs the others nothing."""
        try:
            check_plugin_name(found.name)
        except DeviceError as error:
            _log.warning("the plugin %s of an installed package is left out: %s", found, error)
            return
        if found.name in self._entries:
            _log.warning("%s is left out: another package has a plugin of that name", found)
            return
        self._entries[found.name] = _Entry(found.load)

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
        """Forget a plugin; raises DeviceError if it is not registered.

        It is closed with the others, since its networks, and loads under way, may still need it.
        """
        with self._lock:
            entry = self._entries.pop(name, None)
            known = list(self._entries)
        if entry is None:
            raise DeviceError(
                f"no plugin {name!r} is registered{nearest(name, known)}", device=name
            )
        with entry.lock:
            entry.is_gone = True
            if entry.plugin is not None:
                with self._lock:
                    self._unregistered.append(entry.plugin)

    def maker_of(self, name: str) -> MakePlugin:
        """Return what makes a registered plugin, to register it with another Core."""
        with self._lock:
            entry = self._entries[name]
        return entry.load()

    def get(self, name: str) -> Plugin:
        """Return the plugin, made on first use; raises DeviceError with the reason if it cannot be.

        A failure is remembered: a plugin that could not start is not tried again, unless it was for
        want of memory, threads or files.
        """
        with self._lock:
            if self._is_closed:
                raise closed_core()
            entry = self._entries.get(name)
            known = sorted(self._entries)
        if entry is None:
            text = f"unknown device {name!r}{what_is_meant(name, known)}"
            raise DeviceError(text, device=name)
        with entry.lock:
            if entry.is_gone:
                text = f"unknown device {name!r}: its plugin was unregistered"
                raise DeviceError(text, device=name)
            if entry.plugin is None and entry.failure is None:
                self._make(name, entry)
            if entry.plugin is not None:
                return entry.plugin
            reason = str(entry.failure) or type(entry.failure).__name__
            text = f"device {name} cannot start: {reason}"
            install = entry.failure.install if isinstance(entry.failure, DeviceError) else ""
            raise DeviceError(text, device=name, install=install) from entry.failure

    def _make(self, name: str, entry: _Entry) -> None:
        try:
            with late_imports:  # it opens libraries, under locks of the process
                made = entry.load()(self._core, name)
            if not isinstance(made, Plugin):
                raise DeviceError(
                    f"what is registered made a {type(made).__name__}, and an aioinfer.Plugin is "
                    f"wanted"
                )
            entry.plugin = made
        except Exception as error:
            _log.info("plugin %s cannot start: %s", name, error)
            lacking = find_shortage(error, f"starting device {name}")
            if lacking is error:
                raise
            if lacking is not None:
                raise lacking from error
            entry.failure = error

    def made(self) -> list[Plugin]:
        """List the plugins that were made so far, those included that are unregistered now."""
        with self._lock:
            return self._made()

    def _made(self) -> list[Plugin]:
        entries = list(self._entries.values())
        return [*self._unregistered, *(one.plugin for one in entries if one.plugin is not None)]

    def close(self) -> None:
        """Close and drop the plugins, which drop the Core; names stay. Twice is fine."""
        with self._lock:
            plugins = self._made()
            self._is_closed, self._unregistered = True, []
            self._entries = {name: _Entry(entry.load) for name, entry in self._entries.items()}
            closed: Any = _ClosedCore(self._core.executors)
            self._core = closed
        for plugin in plugins:
            plugin.close()
            plugin.core = closed


class _ClosedCore:
    """What is left to plugins of a closed Core: the executors, to release those acquired."""

    def __init__(self, executors: ExecutorManager) -> None:
        self.executors = executors

    def __getattr__(self, _name: str) -> NoReturn:
        raise closed_core()


def closed_core() -> ClosedError:
    """Make the error of every call of a closed Core."""
    return ClosedError("this Core is closed; make a new one")
