import json
from collections.abc import Callable
from typing import Any

import pytest

from aioinfer import Core
from aioinfer.cli import devices
from aioinfer.cli.devices import DeviceRow, find_devices
from unit.cli.broken_device import core_with_broken_device

Run = Callable[..., Any]


def test_devices_are_sorted_into_physical_virtual_and_missing() -> None:
    with core_with_broken_device() as core:
        rows = {row.device: row for row in find_devices(core)}
    assert rows["REFERENCE.1"].kind == "physical"
    assert rows["REFERENCE.1"].status == "ready"
    assert "FP32" in rows["REFERENCE.1"].capabilities
    assert rows["REFERENCE.1"].full_name.startswith("numpy reference 1")
    assert rows["HETERO"].kind == "virtual"
    assert (rows["BROKEN"].kind, rows["BROKEN"].status) == ("unknown", "cannot start")
    assert "no driver is installed" in rows["BROKEN"].reason


def test_a_single_device_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOINFER_REFERENCE_DEVICES", "1")
    with Core() as core:
        assert "REFERENCE" in [row.device for row in find_devices(core)]


def test_the_tables_show_devices_and_reasons(
    aioinfer: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "Core", core_with_broken_device)
    finished = aioinfer("devices")
    assert (finished.code, finished.err) == (0, "")
    physical, virtual = finished.out.split("Virtual devices")
    assert "REFERENCE.0" in physical
    assert "BROKEN        cannot start" in physical
    assert "HETERO" in virtual
    assert "device BROKEN cannot start: no driver is installed" in finished.out
    assert max(map(len, finished.out.splitlines())) <= 80


def test_json_has_a_row_for_each_device(aioinfer: Run) -> None:
    finished = aioinfer("devices", "--json")
    rows = json.loads(finished.out)["devices"]
    fields = set(DeviceRow.__dataclass_fields__)
    assert all(set(row) == fields for row in rows)
    assert {"HETERO", "REFERENCE.0", "REFERENCE.1"} <= {row["device"] for row in rows}
