"""What a blob says of its network: device, versions, properties, names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import BlobError, PropertyError
from ..properties.properties import Configuration
from .reader import Blob
from .tensors_record import as_list, as_mapping, as_text
from .writer import BlobWriter

__all__ = ["NetworkRecord", "plain_value", "read_network_record", "write_network_record"]

_FRAME = "network"


@dataclass(frozen=True)
class NetworkRecord:
    """The facts of an exported network.

    ``device`` is what it is imported on unless a caller names another one. ``given`` are the
    properties that its caller set, ``resolved`` all others as the device has chosen them.
    ``capability`` is what its payload relies on, by the device's own keys; ``removed_nodes`` are
    what passes have made needless; ``remarks`` are what ``explain`` adds; ``states`` are inputs
    and the outputs that feed them.
    """

    device: str
    version: str
    name: str
    given: Mapping[str, Any]
    resolved: Mapping[str, Any]
    capability: Mapping[str, Any] = field(default_factory=dict)
    removed_nodes: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def refuse_other(self, capability: Mapping[str, Any]) -> None:
        """Raise BlobError that names the first fact that is another one here."""
        for key, wanted in self.capability.items():
            found = capability.get(key)
            if plain_value(found) != wanted:
                raise BlobError(
                    f"the blob is for {key} {wanted!r}, and this machine has {found!r}; load the "
                    f"model and export it here",
                    device=self.device,
                )

    def refuse_other_values(self, config: Configuration, keys: Iterable[str]) -> None:
        """Raise PropertyError for a value that a caller gives and the payload was not made with."""
        had = {**self.resolved, **self.given}
        for key in keys:
            if key in config.given and key in had and plain_value(config[key]) != had[key]:
                raise PropertyError(
                    f"{key}={plain_value(config[key])!r} cannot be given to an import: the network "
                    f"was compiled with {had[key]!r}; load the model with it",
                    key,
                    self.device,
                    value=config[key],
                )


def write_network_record(blob: BlobWriter, record: NetworkRecord) -> None:
    """Add the facts."""
    blob.add_json(
        _FRAME,
        {
            "device": record.device,
            "version": record.version,
            "name": record.name,
            "given": plain_value(record.given),
            "resolved": plain_value(record.resolved),
            "capability": plain_value(record.capability),
            "removed_nodes": list(record.removed_nodes),
            "states": dict(record.states),
            "remarks": list(record.remarks),
        },
    )


def read_network_record(blob: Blob) -> NetworkRecord:
    """Read the facts; raises BlobError for what no export writes."""
    content = as_mapping(blob.json(_FRAME))
    removed = as_list(content.get("removed_nodes"))
    states = as_mapping(content.get("states"))
    return NetworkRecord(
        as_text(content.get("device")),
        as_text(content.get("version")),
        as_text(content.get("name")),
        as_mapping(content.get("given")),
        as_mapping(content.get("resolved")),
        as_mapping(content.get("capability")),
        tuple(map(as_text, removed)),
        {name: as_text(states[name]) for name in states},
        tuple(map(as_text, as_list(content.get("remarks", [])))),
    )


def plain_value(value: Any) -> Any:
    """Return a property's value as JSON holds it, which the property parses again."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return str(value)
