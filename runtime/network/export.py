"""Writing a compiled network for ``Core.import_network``."""

from __future__ import annotations

import io
import os
from importlib.metadata import PackageNotFoundError, version
from typing import IO, TYPE_CHECKING, overload

from ...errors import BlobError
from ..blobs.network_record import NetworkRecord, write_network_record
from ..blobs.writer import BlobWriter, write_file, write_to

if TYPE_CHECKING:
    from .executable_network import ExecutableNetwork

__all__ = ["ExportTarget", "export_network", "package_version", "write_network"]

ExportTarget = str | os.PathLike[str] | IO[bytes]


@overload
def export_network(network: ExecutableNetwork, target: None) -> bytes: ...
@overload
def export_network(network: ExecutableNetwork, target: ExportTarget) -> None: ...
def export_network(network: ExecutableNetwork, target: ExportTarget | None) -> bytes | None:
    """Write a network to a file, whole or not at all, to an open binary file, or as bytes."""
    blob = BlobWriter()
    network.write_blob(blob)
    if target is None:
        made = io.BytesIO()
        write_to(made, blob.chunks())
        return made.getvalue()
    if isinstance(target, str | os.PathLike):
        write_file(target, blob.chunks())
        return None
    try:
        write_to(target, blob.chunks())
    except Exception as error:  # a file object may raise anything
        raise BlobError(f"cannot write the blob to {target!r}: {error}") from error
    return None


def write_network(network: ExecutableNetwork, blob: BlobWriter) -> None:
    """Add a network's facts; its device adds the payload."""
    config = network.config
    facts = NetworkRecord(
        device=network.device,
        version=package_version(),
        name=network.name,
        given={key: config[key] for key in sorted(config.given)},
        resolved={key: config[key] for key in config if key not in config.given},
        capability=network.capability(),
        removed_nodes=network.removed_nodes,
        states={} if network.states is None else network.states.named,
    )
    write_network_record(blob, facts)


def package_version() -> str:
    """Return the version of aioinfer that is installed."""
    try:
        return version("aioinfer")
    except PackageNotFoundError:
        return ""
