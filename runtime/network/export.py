"""Writing a compiled network for ``Core.import_network``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import IO, Any

from ...errors import BlobError
from ...executors.late_imports import late_imports
from ..blobs.network_record import NetworkRecord
from ..blobs.writer import BlobWriter, write_export, write_to
from ..properties.properties import Configuration

__all__ = ["ExportTarget", "export_to", "network_record", "package_version"]

ExportTarget = str | os.PathLike[str] | IO[bytes]
"""Where an export goes: a path, or an open binary file."""


def export_to(target: ExportTarget | None, fill: Callable[[BlobWriter], None]) -> bytes | None:
    """Write a blob to a path, whole or not at all, to an open binary file, or return its bytes."""
    blob = BlobWriter()
    fill(blob)
    if target is None:
        made = io.BytesIO()
        write_to(made, blob.chunks())
        return made.getvalue()
    if isinstance(target, str | os.PathLike):
        write_export(target, blob.chunks())
        return None
    try:
        write_to(target, blob.chunks())
    except Exception as error:  # a file object may raise anything
        raise BlobError(f"cannot write the blob to {target!r}: {error}") from error
    return None


def network_record(
    name: str,
    device: str,
    config: Configuration,
    capability: Mapping[str, Any],
    removed_nodes: tuple[str, ...],
    states: Mapping[str, str],
    remarks: tuple[str, ...],
    local_keys: Collection[str],
) -> NetworkRecord:
    """Collect the facts of a network; the properties that users have chosen stand apart.

    Those that mean something on this machine alone, ``local_keys``, are left out.
    """
    values = _without(config, local_keys)
    return NetworkRecord(
        device=device,
        version=package_version(),
        name=name,
        given={key: values[key] for key in sorted(values) if key in config.given},
        resolved={key: value for key, value in values.items() if key not in config.given},
        capability=capability,
        removed_nodes=removed_nodes,
        states=states,
        remarks=remarks,
    )


def _without(values: Mapping[str, Any], local_keys: Collection[str]) -> dict[str, Any]:
    """Leave out properties, also of devices inside."""
    return {
        key: {device: _without(inner, local_keys) for device, inner in value.items()}
        if key == "DEVICE_PROPERTIES"
        else value
        for key, value in values.items()
        if key not in local_keys
    }


@cache
def package_version() -> str:
    """Return the version of aioinfer that is installed."""
    with late_imports:
        from importlib.metadata import PackageNotFoundError, version

    try:
        return version("aioinfer")
    except PackageNotFoundError:
        return ""
