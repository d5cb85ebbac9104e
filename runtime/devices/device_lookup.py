"""From a device string to the plugin that it means and the properties it would be loaded with."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import DeviceError, PropertyError, nearest, placed
from ...executors.fork import ProcessMark
from ..properties.properties import (
    DEVICE_ID,
    STANDARD_PROPERTIES,
    Configuration,
    property_keys,
)
from .device_aliases import understood
from .device_name import DEVICE_PRIORITIES, DeviceName, parse_device
from .implicit_batching import BATCH, implicit_batch, is_asked_for
from .plugin import Plugin
from .plugin_registry import PluginRegistry, closed_core

__all__ = ["ConfigurationOf", "DeviceLookup"]

_log = logging.getLogger("aioinfer")

_COMMON_PROPERTIES = tuple(
    declared
    for declared in STANDARD_PROPERTIES
    if declared is not DEVICE_ID and not declared.only_at_load
)

ConfigurationOf = Callable[[Mapping[Any, Any] | None], Configuration]
"""Properties that are given for one network -> all that it is loaded with."""


class DeviceLookup:
    """The devices of one Core by their strings, with what is set for all of them. Thread-safe."""

    def __init__(self, registry: PluginRegistry, process: ProcessMark) -> None:
        self._registry = registry
        self._process = process
        self.is_closed = False
        self._lock = threading.Lock()
        self._settings: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """The registered plugins, also those that cannot start."""
        return self._registry.names

    def refuse_if_closed(self) -> None:
        """Raise ClosedError if the Core is closed, or was made before a fork.

        Comes before the registry's locks: after a fork, a thread that is gone may hold one.
        """
        if not self._process.is_current:
            raise self._process.error("this Core")
        if self.is_closed:
            raise closed_core()

    def parsed(self, device: str) -> DeviceName:
        """Read a device string, with other libraries' names; raises DeviceError."""
        self.refuse_if_closed()
        with placed(device=str(device)):
            if isinstance(device, str):
                device = understood(device, self._registry.names)
            return parse_device(device)

    def started(self, name: str) -> Plugin:
        """Return the plugin of a name, with what is set for all; DeviceError if it cannot start."""
        self.refuse_if_closed()
        plugin = self._registry.get(name)
        plugin.set_defaults(self._settings)
        return plugin

    def physical_or_bare(self, device: str) -> DeviceName:
        """Read a device string without a list; raises DeviceError for one, or an unknown id."""
        name = self.parsed(device)
        if name.entries:
            raise DeviceError(
                f"{device!r}: ask and set the bare {name.name!r}, or a device of the list; what is "
                f"for one network goes into load_network",
                device=device,
            )
        plugin = self.started(name.name)
        if name.id is not None:
            plugin.check_device_id(name.id)
        return name

    def loadable(self, device: str) -> tuple[Plugin, ConfigurationOf]:
        """Return the plugin that loads networks on a device, and what completes its properties."""
        name = self.parsed(device)
        plugin = self.started(name.name)

        def config_of(given: Mapping[Any, Any] | None) -> Configuration:
            values = property_keys(given, str(name))
            if name.entries:
                _check_takes_list(plugin, name)
                text = str(name).partition(":")[2]
                if values.setdefault(DEVICE_PRIORITIES, text) != text:
                    raise PropertyError(
                        f"device {device!r} and {DEVICE_PRIORITIES}="
                        f"{values[DEVICE_PRIORITIES]!r} disagree; give one of them",
                        DEVICE_PRIORITIES,
                        device,
                    )
            configuration = plugin.configuration(name.id, values)
            given = {key: configuration[key] for key in configuration.given}
            plugin.honour_log_level(configuration.device, given)
            return configuration

        return plugin, config_of

    def batched(
        self, device: str, plugin: Plugin, configuration: Configuration
    ) -> tuple[Plugin, Configuration]:
        """Return BATCH around the device where that is asked for without its name."""
        if not is_asked_for(configuration) or _takes_list(plugin):
            return plugin, configuration  # AUTO asks again for the device that it chooses
        if BATCH not in self._registry.names:
            return plugin, configuration
        knows = self.started(BATCH).configuration(None).knows
        found = implicit_batch(str(self.parsed(device)), configuration, knows)
        if found is None:
            return plugin, configuration
        batch, config_of = self.loadable(found[0])
        return batch, config_of(found[1])

    def available(self) -> list[str]:
        """List ``NAME``, or ``NAME.ID`` each if a plugin has several; none that cannot start."""
        self.refuse_if_closed()
        devices = []
        for name in self._registry.names:
            try:
                ids = _ids_of(self.started(name))
            except DeviceError as error:
                _log.info("%s", error)
                continue
            devices += [name] if len(ids) == 1 else [f"{name}.{device_id}" for device_id in ids]
        return devices

    def resolve(self, device: str) -> str:
        """Check that a device and those inside it are there; return its full name."""
        name = self.parsed(device)
        for entry in name.entries:
            if not entry.is_excluded:
                self.resolve(entry.device)
        plugin = self.started(name.name)
        plugin.check_device_id(name.id or "")
        reason = plugin.why_no_device()
        if reason is not None:
            raise DeviceError(reason)
        return str(name)

    def why_missing(self, name: str) -> str | None:
        """Return why a plugin, or its search for devices, fails; None if it does not."""
        try:
            plugin = self.started(name)
            _ids_of(plugin)
        except DeviceError as error:
            return str(error)
        return plugin.why_no_device()

    def set_for_all(self, values: Mapping[str, Any]) -> None:
        """Set properties of all devices that know them; nothing is set if one is refused."""
        self.refuse_if_closed()
        common = {declared.key: declared for declared in _COMMON_PROPERTIES}
        parsed = {}
        for key, given in values.items():
            if key not in common:
                hint = nearest(key, common) or "; a property of one device needs its name"
                raise PropertyError(
                    f"no property {key!r} can be set for all devices{hint}",
                    key,
                    "Core",
                    value=given,
                )
            parsed[key] = common[key].value_of(given, "Core")
        with self._lock:
            self._settings = {**self._settings, **parsed}
        for plugin in self._registry.made():
            plugin.set_defaults(self._settings)


def _ids_of(plugin: Plugin) -> list[str]:
    try:
        return plugin.device_ids()
    except Exception as error:  # a plugin's own mistake must not hide the other devices
        raise DeviceError(f"{plugin.name} cannot list its devices: {error!r}") from error


def _takes_list(plugin: Plugin) -> bool:
    return any(declared.key == DEVICE_PRIORITIES for declared in plugin.properties)


def _check_takes_list(plugin: Plugin, name: DeviceName) -> None:
    if not _takes_list(plugin):
        raise DeviceError(
            f"{name.name} takes no list of devices; {str(name)!r} would need a virtual device "
            f"such as HETERO before the colon",
            device=str(name),
        )
