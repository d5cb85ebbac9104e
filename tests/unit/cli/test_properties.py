import json
from collections.abc import Callable
from typing import Any

import pytest

from aioinfer import Core
from aioinfer.cli import properties
from aioinfer.cli.properties import DeviceKeys, MetricRow, PropertyRow, device_keys
from aioinfer.runtime.properties.properties import Metric, Property
from aioinfer.runtime.testing import MockDevices, MockPlugin
from unit.cli.broken_device import broken, core_with_broken_device

Run = Callable[..., Any]


def keys_of(device: str) -> DeviceKeys:
    with core_with_broken_device() as core:
        return device_keys(core, device)


def test_every_key_of_every_device_is_listed() -> None:
    with Core() as core:
        for name in core.plugin_names:
            keys = device_keys(core, name)
            missing = core.why_missing(name)
            if missing and not keys.properties:
                assert keys == DeviceKeys(name, missing)
                continue
            plugin = core.plugin_of(name)
            assert [row.key for row in keys.metrics] == list(plugin.all_metrics())
            listed = {row.key for row in (*keys.properties, *keys.metrics)}
            assert listed == set(core.get_metric(name, "SUPPORTED_PROPERTIES"))
            assert all(row.doc and row.values for row in keys.properties)


def test_a_property_has_type_default_and_values() -> None:
    rows = {row.key: row for row in keys_of("REFERENCE").properties}
    hint, streams, shapes = (
        rows[key] for key in ("PERFORMANCE_HINT", "NUM_STREAMS", "INPUT_SHAPES")
    )
    assert (hint.type, hint.default) == ("str", "LATENCY")
    assert hint.values == "one of 'LATENCY', 'THROUGHPUT', 'CUMULATIVE_THROUGHPUT'"
    assert (streams.type, streams.default, streams.only_at_load) == ("int", "AUTO", False)
    assert streams.values == "an integer 0 to 4096, or AUTO (-1), NUMA (-2)"
    assert (shapes.type, shapes.default, shapes.only_at_load) == ("tuple", (), True)


def test_a_parser_that_is_a_type_says_its_type() -> None:
    class Deep(MockPlugin):
        properties = (Property("DEPTH", int, 3, "How deep."),)

    with Core() as core:
        core.register_plugin("DEEP", lambda core, name: Deep(core, name, MockDevices()))
        row = device_keys(core, "DEEP").properties[-1]
    assert row == PropertyRow("DEPTH", "int", 3, "", False, "How deep.")


def test_facts_of_device_and_network_tell_what_they_say_now() -> None:
    keys = keys_of("REFERENCE.1")
    by_key = {row.key: row for row in (*keys.metrics, *keys.network_metrics)}
    assert by_key["FULL_DEVICE_NAME"].value.startswith("numpy reference 1")
    assert by_key["EXECUTION_DEVICES"] == MetricRow(
        "EXECUTION_DEVICES", "list", ["REFERENCE.1"], by_key["EXECUTION_DEVICES"].doc
    )


def test_a_fact_that_cannot_be_read_has_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    with Core() as core:
        lost = Metric("HEAT", lambda _: broken(core, ""), "How hot it is.")
        monkeypatch.setattr(core.plugin_of("REFERENCE"), "metrics", lambda: [lost])
        rows = {row.key: row for row in device_keys(core, "REFERENCE").metrics}
    assert rows["HEAT"] == MetricRow("HEAT", "", None, "How hot it is.")


def test_a_virtual_device_tells_of_its_networks() -> None:
    assert "NUMBER_OF_SUBGRAPHS" in {row.key for row in keys_of("HETERO").network_metrics}


def test_a_device_that_cannot_start_has_its_reason() -> None:
    assert keys_of("BROKEN") == DeviceKeys(
        "BROKEN", "device BROKEN cannot start: no driver is installed"
    )


def test_the_tables_tell_of_all_devices(aioinfer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "Core", core_with_broken_device)
    finished = aioinfer("properties")
    assert (finished.code, finished.err) == (0, "")
    assert "HETERO: properties;" in finished.out
    assert "REFERENCE: metrics of a network" in finished.out
    assert "INPUT_SHAPES*" in finished.out
    assert "device BROKEN cannot start: no driver is installed" in finished.out


def test_each_row_is_a_line_in_a_pipe(aioinfer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = aioinfer("properties", "REFERENCE").out.splitlines()
    line = next(line for line in lines if line.startswith("LOG_LEVEL"))
    assert line.rstrip().endswith("until it is set, Python's logging decides.")
    assert max(map(len, lines)) <= 1000


def test_json_holds_the_values_themselves(aioinfer: Run) -> None:
    finished = aioinfer("properties", "HETERO", "--json")
    (device,) = json.loads(finished.out)["devices"]
    assert (device["device"], device["missing"]) == ("HETERO", "")
    defaults = {row["key"]: row["default"] for row in device["properties"]}
    assert (defaults["AFFINITY"], defaults["PERF_COUNT"]) == ({}, False)
    facts = {row["key"]: row["value"] for row in device["network_metrics"]}
    assert facts["NUMBER_OF_SUBGRAPHS"] == 1


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("REFERNCE", "did you mean 'REFERENCE'"),
        ("REFERENCE.7", "no device '7'"),
        ("HETERO:REFERENCE", "bare 'HETERO'"),
    ],
)
def test_a_wrong_device_is_an_error(aioinfer: Run, device: str, says: str) -> None:
    finished = aioinfer("properties", device)
    assert (finished.code, finished.out) == (1, "")
    assert says in finished.err
