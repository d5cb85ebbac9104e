"""Loading what ``network.export`` wrote: which device, with which properties."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BlobError, GraphError, ModelError, PropertyError
from ..blobs.network_record import NetworkRecord, plain_value
from ..blobs.reader import Blob
from ..network.executable_network import ExecutableNetwork
from ..properties.properties import DEVICE_ID, STATE, Configuration, property_keys
from .device_name import parse_device
from .plugin import Plugin

__all__ = [
    "FileStatus",
    "configuration_of",
    "device_of",
    "file_status",
    "import_blob",
    "refuse_other_device",
]

MULTI_DEVICE_PRIORITIES = "MULTI_DEVICE_PRIORITIES"


def refuse_other_device(device: str | None, record: NetworkRecord) -> None:
    """Raise BlobError if a caller wants a device of another kind than the one that exported."""
    if device is not None and parse_device(device).name != parse_device(record.device).name:
        raise BlobError(
            f"the blob was exported by {record.device!r} and cannot be imported on {device!r}",
            device=device,
        )


def device_of(record: NetworkRecord) -> str:
    """Return the device to import on; the devices inside of it stand among the properties."""
    device = parse_device(record.device)
    return device.name if device.entries else record.device


def configuration_of(
    config_of: Callable[[Mapping[Any, Any]], Configuration],
    record: NetworkRecord,
    device: str | None,
    config: Mapping[Any, Any] | None,
) -> Configuration:
    """Return the properties that the network had, with those of the caller's in their place.

    A device that the caller names stands for the one that was named at the load.
    """
    replaced = {DEVICE_ID.key} if device is None else {DEVICE_ID.key, MULTI_DEVICE_PRIORITIES}
    given = {key: value for key, value in record.given.items() if key not in replaced}
    chosen = property_keys(config, device or record.device)
    try:
        configuration = config_of({**given, **chosen})
    except PropertyError as error:
        if error.key in chosen or error.key not in given:
            raise
        raise _unfit(record, error) from error
    changed = {
        key: value
        for key, value in record.resolved.items()
        if configuration.knows(key)
        and key not in configuration.given
        and key not in replaced
        and plain_value(configuration[key]) != value
    }
    try:
        return configuration.with_defaults(changed)
    except PropertyError as error:
        raise _unfit(record, error) from error


def _unfit(record: NetworkRecord, error: PropertyError) -> BlobError:
    return BlobError(
        f"a property of the blob cannot be used here: {error}; give another to import_network, or "
        f"export it again",
        device=record.device,
    )


def import_blob(
    plugin: Plugin, blob: Blob, record: NetworkRecord, config: Configuration
) -> ExecutableNetwork:
    """Have a plugin load a blob, and its requests keep the states that they kept.

    Raises BlobError, also for a graph that contradicts itself.
    """
    record.refuse_other_values(config, [STATE.key])
    try:
        network = plugin.import_network(blob, record, config)
    except (GraphError, ModelError) as error:
        raise BlobError(
            f"the blob holds what {config.device} cannot compile: {error}; export it again",
            device=config.device,
        ) from error
    if record.states:
        _keep_recorded_states(network, record)
    return network


def _keep_recorded_states(network: ExecutableNetwork, record: NetworkRecord) -> None:
    inputs = {port.name for port in network.model_inputs}
    outputs = {port.name for port in network.model_outputs}
    if not (record.states.keys() <= inputs and set(record.states.values()) <= outputs):
        network.close()
        raise BlobError(
            f"the blob is damaged: its states {dict(record.states)} are not among inputs "
            f"{sorted(inputs)} and outputs {sorted(outputs)}; export it again",
            device=record.device,
        )
    network.keep_states(record.states)


@dataclass(frozen=True)
class FileStatus:
    """What the system says of a file, and when it said so."""

    found: os.stat_result
    asked_ns: int

    @property
    def mark(self) -> list[int]:
        """What changes with the file's content."""
        found = self.found
        return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]

    @property
    def unchanged_ns(self) -> int:
        """How long the file had not been written to."""
        return self.asked_ns - max(self.found.st_mtime_ns, self.found.st_ctime_ns)


def file_status(path: Path | None) -> FileStatus | None:
    """Ask the system for a file, before it is read; None where there is none."""
    asked_ns = time.time_ns()
    try:
        return None if path is None else FileStatus(os.stat(path), asked_ns)
    except (OSError, ValueError):
        return None
