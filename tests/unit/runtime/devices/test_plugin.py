"""What every plugin gets from its base class: properties, facts, queries and refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import aioinfer
from aioinfer.errors import DeviceError, NotSupportedError, PropertyError
from aioinfer.runtime.devices.plugin import Plugin
from aioinfer.runtime.properties.properties import DEVICE_ID, NUM_STREAMS, STANDARD_PROPERTIES
from unit.runtime.models import tiny_model
from unit.runtime.toy_plugin import SPEED, ToyPlugin


@pytest.fixture
def plugin() -> Iterator[ToyPlugin]:
    with aioinfer.Core() as core:
        yield ToyPlugin(core, "TOY")


def test_argument_wins_over_the_device_over_its_kind_over_the_core_over_the_default(
    plugin: ToyPlugin,
) -> None:
    def speed(device_id: str | None = None, **given: Any) -> int:
        return int(plugin.configuration(device_id, given)["NUM_STREAMS"])

    assert speed("1") == NUM_STREAMS.default
    plugin.set_defaults({"NUM_STREAMS": 2})
    assert speed("1") == 2
    plugin.set_config({"NUM_STREAMS": 3})
    assert speed("1") == 3
    plugin.set_config({NUM_STREAMS: 4}, "1")
    assert speed("1") == 4
    assert speed("1", NUM_STREAMS=5) == 5
    assert speed("2") == speed() == 3


def test_only_what_somebody_set_counts_as_given(plugin: ToyPlugin) -> None:
    plugin.set_defaults({"NUM_STREAMS": 2})
    plugin.set_config({"SPEED": 1})
    assert plugin.configuration(None, {"PERF_COUNT": True}).given == {
        "SPEED",
        "PERF_COUNT",
        "DEVICE_ID",
    }


def test_a_property_of_a_device_holds_however_the_device_is_chosen(plugin: ToyPlugin) -> None:
    plugin.set_config({"SPEED": 1}, "0")
    plugin.set_config({"SPEED": 2}, "1")
    assert plugin.get_config("SPEED") == 1  # the first is the one that the bare name means
    assert plugin.configuration(None, {"DEVICE_ID": "1"})["SPEED"] == 2
    plugin.set_config({"DEVICE_ID": "1"})
    assert plugin.get_config("SPEED") == 2
    assert plugin.get_config("SPEED", "2") == SPEED.default


def test_a_default_id_gives_way_to_a_name_and_a_contradiction_is_refused(
    plugin: ToyPlugin,
) -> None:
    plugin.set_config({"DEVICE_ID": "2"})
    assert plugin.get_config("DEVICE_ID") == "2"
    assert plugin.get_config("DEVICE_ID", "0") == "0"
    assert plugin.configuration("1", {DEVICE_ID: "1"})[DEVICE_ID] == "1"
    with pytest.raises(PropertyError, match=r"device 'TOY.1' and DEVICE_ID='0' disagree; give one"):
        plugin.configuration("1", {DEVICE_ID: "0"})
    with pytest.raises(DeviceError, match=r"TOY has no device '5'; it has \['TOY.0', 'TOY.1'"):
        plugin.configuration(None, {"DEVICE_ID": "5"})
    with pytest.raises(DeviceError, match="TOY has no device '5'"):
        plugin.set_config({"DEVICE_ID": "5"})
    assert plugin.get_config("DEVICE_ID") == "2"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"SPEED": 1, "SPED": 2}, "TOY has no property 'SPED'; did you mean 'SPEED'"),
        ({"SPEED": 1, "NUM_STREAMS": -10}, "bad value -10 for NUM_STREAMS"),
        ({"SPEED": 1, "INFERENCE_PRECISION_HINT": "f16"}, "TOY knows f32 only"),
        ({"SPEED": 1, "INPUT_SHAPES": {"x": [1]}}, "INPUT_SHAPES belongs to one network; give it"),
        ({"SPEED": 1, "WEIGHT": "0 kg"}, "WEIGHT is a fact that can only be read"),
        ({"SPEED": 1, "KEY_PERF_COUNT": True}, "KEY_PERF_COUNT is the old name of PERF_COUNT"),
    ],
)
def test_all_settings_are_taken_or_none(
    plugin: ToyPlugin, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        plugin.set_config(values)
    assert plugin.get_config("SPEED") == SPEED.default


def test_settings_from_many_threads_are_all_kept(plugin: ToyPlugin) -> None:
    def set_own(index: int) -> None:
        for value in range(50):
            plugin.set_config({"SPEED": value}, str(index))
            plugin.set_config({["PERF_COUNT", "NUM_STREAMS", "LOG_LEVEL"][index]: kept[index]})

    kept = [True, 3, "LOG_ERROR"]
    threads = [threading.Thread(target=set_own, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [plugin.get_config("SPEED", str(index)) for index in range(3)] == [49, 49, 49]
    config = plugin.configuration("2")
    assert [config["PERF_COUNT"], config["NUM_STREAMS"], config["LOG_LEVEL"]] == kept
    plugin.set_config({"LOG_LEVEL": "LOG_NONE"})


def test_facts_of_the_seeds_are_there_with_those_of_the_plugin(plugin: ToyPlugin) -> None:
    def ask(key: str, **options: Any) -> Any:
        return plugin.get_metric(key, options)

    assert ask("AVAILABLE_DEVICES") == ["0", "1", "2"]
    assert ask("FULL_DEVICE_NAME") == "mock device 0"
    assert ask("FULL_DEVICE_NAME", DEVICE_ID="1") == "mock device 1"
    assert ask("OPTIMIZATION_CAPABILITIES") == ["FP32"]
    assert ask("RANGE_FOR_STREAMS") == (1, 1)
    assert ask("RANGE_FOR_ASYNC_INFER_REQUESTS") == (1, 2, 1)
    assert ask("WEIGHT", UNIT="lb", DEVICE_ID="2") == "2: 5 lb"
    keys = {declared.key for declared in STANDARD_PROPERTIES} | {"SPEED"}
    assert set(ask("SUPPORTED_CONFIG_KEYS")) == keys
    supported = ask("SUPPORTED_PROPERTIES")
    assert {key for key, access in supported.items() if access == "RW"} == keys
    assert {key for key, access in supported.items() if access == "RO"} == set(
        ask("SUPPORTED_METRICS")
    )
    for key in ask("SUPPORTED_METRICS"):
        assert ask(key), key


@pytest.mark.parametrize(
    ("key", "options", "message"),
    [
        ("WEIGH", {}, "TOY has no metric 'WEIGH'; did you mean 'WEIGHT'"),
        ("ZZZ", {}, "TOY has no metric 'ZZZ'; it has \\['AVAILABLE_DEVICES'"),
        ("SPEED", {}, "that is a property that can be set: ask with get_config"),
        ("WEIGHT", {"UNITS": 1}, "TOY: WEIGHT takes the options DEVICE_ID, UNIT, and 'UNITS'"),
        ("FULL_DEVICE_NAME", {"ID": "1"}, "FULL_DEVICE_NAME takes the options DEVICE_ID, and"),
    ],
)
def test_an_unknown_fact_or_option_names_the_way_out(
    plugin: ToyPlugin, key: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message) as caught:
        plugin.get_metric(key, options)
    assert caught.value.device == "TOY"


def test_a_fact_of_a_device_that_is_not_there_is_a_device_error(plugin: ToyPlugin) -> None:
    with pytest.raises(DeviceError, match="TOY has no device '9'"):
        plugin.get_metric("FULL_DEVICE_NAME", {"DEVICE_ID": "9"})


def test_what_is_optional_is_refused_with_the_way_out(plugin: ToyPlugin) -> None:
    extension = aioinfer.Extension("Swirl", lambda x: x)
    with pytest.raises(NotSupportedError, match=r"TOY takes no extensions; .*HETERO:TOY,REFERENCE"):
        plugin.add_extension(extension)


def test_a_plugin_without_its_abstract_methods_cannot_be_made() -> None:
    with aioinfer.Core() as core:
        core.register_plugin("HALF", type("Half", (Plugin,), {}))
        with pytest.raises(DeviceError, match=r"device HALF cannot start: .*abstract"):
            core.load_network(tiny_model(), "HALF")


def test_a_plugin_says_what_it_is(plugin: ToyPlugin) -> None:
    assert repr(plugin) == "<ToyPlugin 'TOY'>"
