"""Loading what ``network.export`` wrote: which device, with which properties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...errors import (
    BlobError,
    DeviceError,
    GraphError,
    ModelError,
    PropertyError,
    TensorError,
    nearest,
)
from ..blobs.network_record import NetworkRecord, plain_value
from ..blobs.reader import Blob
from ..network.executable_network import ExecutableNetwork
from ..properties.properties import (
    DEVICE_ID,
    INPUT_SHAPES,
    STATE,
    Configuration,
    property_keys,
)
from .device_name import DEVICE_PRIORITIES, DEVICE_PROPERTIES, DeviceName, parse_device
from .plugin import Plugin

__all__ = [
    "blob_at_fault",
    "chosen_by_caller",
    "configuration_of",
    "device_of",
    "import_blob",
    "refuse_other_device",
    "without_local",
]


def refuse_other_device(device: str | None, record: NetworkRecord) -> None:
    """Raise BlobError if a caller wants a device of another kind than the one that exported."""
    if device is not None and parse_device(device).name != recorded_device(record).name:
        raise BlobError(
            f"the blob was exported by {record.device!r} and cannot be imported on {device!r}; "
            f"import it without a device, which is then that one, or load the model on {device!r}",
            device=device,
        )


def recorded_device(record: NetworkRecord) -> DeviceName:
    """Read the device that exported a blob; raises BlobError for what names none."""
    try:
        return parse_device(record.device)
    except DeviceError as error:
        raise BlobError(
            f"the blob is damaged: it names the device {record.device!r:.60} ({error}); export it "
            f"again"
        ) from error


def device_of(record: NetworkRecord, known: Sequence[str]) -> str:
    """Return the device to import on; the devices inside of it stand among the properties.

    Raises BlobError for one that is not among the ``known`` names.
    """
    device = recorded_device(record)
    if device.name not in known:
        raise BlobError(
            f"the blob was exported by {record.device!r}, and there is no device {device.name!r} "
            f"here{nearest(device.name, known)}; install its package, or register its plugin",
            device=record.device,
        )
    return device.name if device.entries else record.device


def without_local(record: NetworkRecord, plugin_of: Callable[[str], Plugin]) -> NetworkRecord:
    """Leave out properties that may name files or libraries of this machine.

    A blob may come from a stranger: they are taken from the caller of an import alone.
    """

    def kept(device: str, values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            properties = plugin_of(parse_device(device).name).all_properties()
        except DeviceError:
            return {}  # nothing of it can be set
        local = {declared.key for declared in properties if declared.is_local}
        return {
            key: inside(value) if key == DEVICE_PROPERTIES else value
            for key, value in values.items()
            if key not in local
        }

    def inside(properties: Any) -> Any:
        if not isinstance(properties, Mapping):
            return properties  # which its parser refuses
        return {
            device: kept(device, values) if isinstance(values, Mapping) else values
            for device, values in properties.items()
        }

    device = recorded_device(record).name
    return replace(record, given=kept(device, record.given), resolved=kept(device, record.resolved))


def configuration_of(
    config_of: Callable[[Mapping[Any, Any]], Configuration],
    record: NetworkRecord,
    device: str | None,
    config: Mapping[Any, Any] | None,
) -> Configuration:
    """Return the properties that the network had, with those of the caller's in their place.

    A device that the caller names stands for the one that was named at the load.
    """
    replaced = {DEVICE_ID.key} if device is None else {DEVICE_ID.key, DEVICE_PRIORITIES}
    given = {key: value for key, value in record.given.items() if key not in replaced}
    chosen = property_keys(config, device or record.device)
    try:
        configuration = config_of({**given, **chosen})
    except PropertyError as error:
        if error.key in chosen or error.key not in given:
            raise
        raise _unfit(record, error) from error
    except DeviceError as error:
        if device is not None or replaced & chosen.keys():
            raise
        raise BlobError(
            f"the blob was exported by {record.device!r}: {error}; name another one of that kind, "
            f"as in import_network(blob, {recorded_device(record).name!r})",
            device=record.device,
        ) from error
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


def chosen_by_caller(
    record: NetworkRecord,
    configuration: Configuration,
    device: str | None,
    config: Mapping[Any, Any] | None,
) -> frozenset[str]:
    """Return the keys of properties that were given here, and do not come from a blob.

    A device that is named says what those of it are.
    """
    of_device = () if device is None else (DEVICE_ID.key, DEVICE_PRIORITIES)
    chosen = property_keys(config, record.device).keys()
    return (configuration.given - record.given.keys()) | chosen | frozenset(of_device)


def _unfit(record: NetworkRecord, error: PropertyError) -> BlobError:
    return BlobError(
        f"a property of the blob cannot be used here: {error}; give another to import_network, or "
        f"export it again",
        device=record.device,
    )


@contextmanager
def blob_at_fault(
    record: NetworkRecord, device: str, chosen: Collection[str] = ()
) -> Iterator[None]:
    """Raise BlobError for a graph that contradicts itself, and for a property that does not fit it.

    A property among ``chosen`` is its caller's, and so is what it does not fit.
    """
    try:
        yield
    except (GraphError, ModelError) as error:
        raise BlobError(
            f"the blob holds what {device} cannot compile: {error}; export it again", device=device
        ) from error
    except PropertyError as error:
        if error.key in chosen or error.key not in {*record.given, *record.resolved}:
            raise
        raise _unfit(record, error) from error
    except TensorError as error:
        if INPUT_SHAPES.key in chosen:
            raise
        raise BlobError(
            f"the blob was exported with {INPUT_SHAPES.key} that do not fit it: {error}; give "
            f"others to import_network",
            device=device,
        ) from error


def import_blob(
    plugin: Plugin,
    blob: Blob,
    record: NetworkRecord,
    config: Configuration,
    chosen: Collection[str] | None = None,
) -> ExecutableNetwork:
    """Have a plugin load a blob, and its requests keep the states that they kept.

    ``chosen`` are the properties that do not come from the blob; by default all that are given.
    Raises BlobError, also for a graph that contradicts itself.
    """
    with blob_at_fault(record, config.device, config.given if chosen is None else chosen):
        record.refuse_other_values(config, [STATE.key])
        network = plugin.import_network(blob, record, config)
    kept = config.value_or_default(STATE)
    if isinstance(kept, Mapping) and dict(kept) != dict(record.states):
        network.close()
        raise BlobError(
            f"the blob is damaged: its states {dict(record.states)} are not those of {STATE.key}, "
            f"{dict(kept)}; export it again",
            device=record.device,
        )
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
