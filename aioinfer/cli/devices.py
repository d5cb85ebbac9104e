"""``aioinfer devices``: what there is, and why the rest is not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from ..runtime.devices.core import Core
from .console import make_console, print_table

__all__ = ["DeviceRow", "find_devices", "run_devices"]


@dataclass(frozen=True)
class DeviceRow:
    """One device; a virtual one is made of others. ``reason`` says why one cannot start."""

    device: str
    kind: Literal["physical", "virtual", "unknown"]
    status: Literal["ready", "cannot start"]
    full_name: str = ""
    capabilities: tuple[str, ...] = ()
    reason: str = ""


def run_devices(*, is_json: bool) -> int:
    """Print the devices of every installed plugin; always 0."""
    with Core() as core:
        rows = find_devices(core)
    if is_json:
        print(json.dumps({"devices": [asdict(row) for row in rows]}, indent=2))
    else:
        _print_tables(rows)
    return 0


def find_devices(core: Core) -> list[DeviceRow]:
    """List the devices of every plugin, those that cannot start included."""
    rows: list[DeviceRow] = []
    for name in core.plugin_names:
        reason = core.why_missing(name)
        if reason is not None:
            rows.append(DeviceRow(name, "unknown", "cannot start", reason=reason))
            continue
        ids = core.get_metric(name, "AVAILABLE_DEVICES")
        if not ids:
            rows.append(_ready(core, name, "virtual"))
        elif len(ids) == 1:
            rows.append(_ready(core, name, "physical"))
        else:
            rows += [_ready(core, f"{name}.{device_id}", "physical") for device_id in ids]
    return rows


def _ready(core: Core, device: str, kind: Literal["physical", "virtual"]) -> DeviceRow:
    return DeviceRow(
        device,
        kind,
        "ready",
        str(core.get_metric(device, "FULL_DEVICE_NAME")),
        tuple(core.get_metric(device, "OPTIMIZATION_CAPABILITIES")),
    )


def _print_tables(rows: list[DeviceRow]) -> None:
    console = make_console()
    physical = [row for row in rows if row.kind != "virtual"]
    virtual = [row for row in rows if row.kind == "virtual"]
    print_table(
        console,
        "Devices",
        ["device", "status", "name", "capabilities"],
        [(row.device, row.status, row.full_name, " ".join(row.capabilities)) for row in physical],
        fold=["name", "capabilities"],
    )
    if virtual:
        print_table(
            console,
            "Virtual devices, made of those; NAME:A,B says which",
            ["device", "status"],
            [(row.device, row.status) for row in virtual],
        )
    for row in rows:
        if row.reason:
            console.print(row.reason)
