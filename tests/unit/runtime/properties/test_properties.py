"""Properties: parsing, precedence, and errors that name key, value, device and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import PropertyError
from aioinfer.runtime.properties.properties import (
    AUTO,
    DEVICE_ID,
    INPUT_SHAPES,
    LOG_LEVEL,
    NUM_STREAMS,
    NUMA,
    PERF_COUNT,
    PERFORMANCE_HINT,
    STANDARD_PROPERTIES,
    UNBOUNDED,
    Configuration,
    Metric,
    Property,
    parse_mapping,
    parse_text,
    property_keys,
    slot_count,
    stream_count,
)

BY_KEY = {declared.key: declared for declared in STANDARD_PROPERTIES}


@pytest.fixture
def config() -> Configuration:
    return Configuration("TOY.1", STANDARD_PROPERTIES, ["FULL_DEVICE_NAME"])


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        ("NUM_STREAMS", 4, 4),
        ("NUM_STREAMS", "4", 4),
        ("NUM_STREAMS", " 4 ", 4),
        ("NUM_STREAMS", np.int64(4), 4),
        ("NUM_STREAMS", 0, 0),
        ("NUM_STREAMS", "auto", AUTO),
        ("NUM_STREAMS", AUTO, AUTO),
        ("NUM_STREAMS", "-1", AUTO),
        ("NUM_STREAMS", "NUMA", NUMA),
        ("PERFORMANCE_HINT_NUM_REQUESTS", 10, 10),
        ("INFERENCE_NUM_THREADS", "2", 2),
        ("PERFORMANCE_HINT", "throughput", "THROUGHPUT"),
        ("PERFORMANCE_HINT", "CUMULATIVE_THROUGHPUT", "CUMULATIVE_THROUGHPUT"),
        ("INFERENCE_PRECISION_HINT", "BF16", "bf16"),
        ("LOG_LEVEL", "log_debug", "LOG_DEBUG"),
        ("PERF_COUNT", True, True),
        ("PERF_COUNT", "YES", True),
        ("PERF_COUNT", "false", False),
        ("DEVICE_ID", "1", "1"),
        ("INPUT_SHAPES", {"x": [1, 3]}, ({"x": (1, 3)},)),
        ("INPUT_SHAPES", [{"x": (1,)}, {"x": (np.int32(2),)}], ({"x": (1,)}, {"x": (2,)})),
        ("INPUT_SHAPES", [], ()),
        ("MAX_QUEUED_REQUESTS", "100", 100),
        ("MAX_QUEUED_REQUESTS", 0, 0),
        ("MAX_QUEUED_REQUESTS", "unbounded", UNBOUNDED),
        ("MAX_QUEUED_REQUESTS", -1, UNBOUNDED),
        ("DEFAULT_DEADLINE_S", 2, 2.0),
        ("DEFAULT_DEADLINE_S", "0.25", 0.25),
        ("DEFAULT_DEADLINE_S", np.float32(0.5), 0.5),
    ],
)
def test_a_value_may_be_given_as_it_is_or_in_words(key: str, given: Any, expected: Any) -> None:
    assert BY_KEY[key].value_of(given, "TOY") == expected


@pytest.mark.parametrize(
    ("key", "given", "wanted"),
    [
        ("NUM_STREAMS", -10, "an integer 0 to 4096, or AUTO .-1., NUMA .-2., is wanted"),
        ("NUM_STREAMS", 1_000_000, "an integer 0 to 4096"),
        ("NUM_STREAMS", "many", "an integer 0 to 4096"),
        ("NUM_STREAMS", "1_0", "an integer"),
        ("NUM_STREAMS", "²", "an integer"),
        ("NUM_STREAMS", 1.0, "an integer"),
        ("NUM_STREAMS", True, "an integer"),
        ("NUM_STREAMS", None, "an integer"),
        ("PERFORMANCE_HINT_NUM_REQUESTS", -10, "an integer 0 to 65536 is wanted"),
        ("PERFORMANCE_HINT_NUM_REQUESTS", 65_537, "an integer 0 to 65536 is wanted"),
        ("INFERENCE_NUM_THREADS", "9" * 5000, "an integer of at least 0 is wanted"),
        ("PERFORMANCE_HINT", -1, "one of 'LATENCY', 'THROUGHPUT', 'CUMULATIVE_THROUGHPUT' is"),
        ("PERFORMANCE_HINT", "FAST", "one of 'LATENCY'"),
        ("INFERENCE_PRECISION_HINT", "f8", "one of 'f32', 'tf32', 'f16', 'bf16' is wanted"),
        ("LOG_LEVEL", 20, "one of 'LOG_NONE'"),
        ("PERF_COUNT", -1, "True, False, 'YES' or 'NO' is wanted"),
        ("PERF_COUNT", 1, "True, False, 'YES' or 'NO' is wanted"),
        ("PERF_COUNT", "perhaps", "True, False, 'YES' or 'NO' is wanted"),
        ("DEVICE_ID", 1, "a string is wanted"),
        ("INPUT_SHAPES", "x", "a mapping input name -> shape"),
        ("INPUT_SHAPES", 3, "a mapping input name -> shape"),
        ("INPUT_SHAPES", [("x", (1,))], "a mapping input name -> shape"),
        ("INPUT_SHAPES", {"x": 3}, "the shape of 'x' is 3"),
        ("INPUT_SHAPES", {"x": "13"}, "the shape of 'x' is '13'"),
        ("INPUT_SHAPES", {"x": [1, -1]}, "lengths are integers of at least 0; 'x' has"),
        ("INPUT_SHAPES", {"x": [1, True]}, "lengths are integers"),
        ("INPUT_SHAPES", {"x": ["n"]}, "lengths are integers"),
        ("INPUT_SHAPES", {"x": [1 << 64]}, "lengths are integers"),
        ("MAX_QUEUED_REQUESTS", -2, "an integer of at least 0, or UNBOUNDED .-1., is wanted"),
        ("MAX_QUEUED_REQUESTS", 1.5, "an integer of at least 0, or UNBOUNDED .-1., is wanted"),
        ("DEFAULT_DEADLINE_S", -0.1, "a number of seconds, 0 or more, is wanted"),
        ("DEFAULT_DEADLINE_S", "inf", "a number of seconds, 0 or more, is wanted"),
        ("DEFAULT_DEADLINE_S", float("nan"), "a number of seconds, 0 or more, is wanted"),
        ("DEFAULT_DEADLINE_S", True, "a number of seconds, 0 or more, is wanted"),
        ("DEFAULT_DEADLINE_S", 10**400, "a number of seconds, 0 or more, is wanted"),
    ],
)
def test_a_bad_value_names_key_value_device_and_what_is_wanted(
    key: str, given: Any, wanted: str
) -> None:
    with pytest.raises(PropertyError, match=f"^TOY: bad value .* for {key}: .*{wanted}") as caught:
        BY_KEY[key].value_of(given, "TOY")
    assert (caught.value.key, caught.value.device) == (key, "TOY")


@pytest.mark.parametrize("key", sorted(BY_KEY))
def test_every_default_and_every_parsed_value_can_be_given_again(key: str) -> None:
    declared = BY_KEY[key]
    assert declared.value_of(declared.default, "TOY") == declared.default
    assert declared.doc.endswith(".")


def test_parsed_values_cannot_be_changed_behind_the_configuration() -> None:
    given = {"x": [1]}
    (shapes,) = INPUT_SHAPES.value_of(given, "TOY")
    given["x"].append(2)
    assert shapes == {"x": (1,)}
    with pytest.raises(TypeError):
        shapes["y"] = (3,)  # type: ignore[index]
    assert isinstance(parse_mapping({"a": 1}), MappingProxyType)
    with pytest.raises(ValueError, match="string keys"):
        parse_mapping({1: 1})


def test_every_key_has_a_value_and_the_given_ones_win(config: Configuration) -> None:
    assert set(config) == set(BY_KEY)
    assert len(config) == len(BY_KEY)
    changed = config.with_values({"NUM_STREAMS": "3"}).with_defaults({"PERF_COUNT": "YES"})
    assert (changed["NUM_STREAMS"], changed["PERF_COUNT"]) == (3, True)
    assert changed.given == {"NUM_STREAMS"}
    assert config["NUM_STREAMS"] == AUTO
    assert repr(changed) == "<Configuration of TOY.1: {'NUM_STREAMS': 3}>"


def test_a_property_stands_for_its_key(config: Configuration) -> None:
    changed = config.with_values({NUM_STREAMS: 3, "PERF_COUNT": True})
    assert changed[NUM_STREAMS] == changed["NUM_STREAMS"] == 3
    assert changed[PERF_COUNT] is True
    with pytest.raises(PropertyError, match="NUM_STREAMS is given twice"):
        config.with_values({NUM_STREAMS: 3, "NUM_STREAMS": 4})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("NUM_STREAM", "TOY.1 has no property 'NUM_STREAM'; did you mean 'NUM_STREAMS'\\?"),
        ("num_streams", "did you mean 'NUM_STREAMS'\\?"),
        ("XYZ", "TOY.1 has no property 'XYZ'; it knows \\['ALLOW_AUTO_BATCHING', "),
        ("FULL_DEVICE_NAME", "TOY.1.*FULL_DEVICE_NAME"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_one(
    config: Configuration, key: str, message: str
) -> None:
    for call in (lambda: config[key], lambda: config.with_values({key: 1})):
        with pytest.raises(PropertyError, match=message) as caught:
            call()
        assert (caught.value.key, caught.value.device) == (key, "TOY.1")


def test_a_fact_cannot_be_set_and_the_error_says_so(config: Configuration) -> None:
    with pytest.raises(PropertyError, match="is a fact that can only be read, with get_metric"):
        config.with_values({"FULL_DEVICE_NAME": "mine"})
    with pytest.raises(PropertyError, match="that is a fact: ask with get_metric"):
        _ = config["FULL_DEVICE_NAME"]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("KEY_PERF_COUNT", "PERF_COUNT", True),
        ("KEY_DEVICE_ID", "DEVICE_ID", "1"),
        ("CPU_THROUGHPUT_STREAMS", "NUM_STREAMS", 3),
    ],
)
def test_old_names_can_be_read_and_not_set(
    config: Configuration, old: str, new: str, value: Any
) -> None:
    assert config.with_values({new: value})[old] == value
    with pytest.raises(PropertyError, match=f"{old} is the old name of {new} and .* set {new}"):
        config.with_values({old: value})
    assert old not in set(config)


def test_an_old_name_of_a_property_that_is_not_there_is_unknown() -> None:
    bare = Configuration("TOY", [DEVICE_ID])
    with pytest.raises(PropertyError, match="TOY has no property 'CPU_THROUGHPUT_STREAMS'"):
        _ = bare["CPU_THROUGHPUT_STREAMS"]
    with pytest.raises(PropertyError, match="TOY has no property 'CPU_THROUGHPUT_STREAMS'"):
        bare.with_values({"CPU_THROUGHPUT_STREAMS": 1})


@pytest.mark.parametrize("values", [5, "NUM_STREAMS", [("NUM_STREAMS", 1)]])
def test_a_configuration_is_a_mapping(values: Any) -> None:
    with pytest.raises(PropertyError, match="TOY: a configuration is a mapping such as"):
        property_keys(values, "TOY")
    assert property_keys(None, "TOY") == {}


def test_keys_that_are_no_strings_are_unknown(config: Configuration) -> None:
    with pytest.raises(PropertyError, match="no property '5'"):
        config.with_values({5: 1})


def test_a_parser_that_raises_type_error_is_a_bad_value_too() -> None:
    odd: Property[int] = Property("ODD", len, 0, "The length.")  # type: ignore[arg-type]
    with pytest.raises(PropertyError, match="TOY: bad value 5 for ODD: object of type 'int'"):
        odd.value_of(5, "TOY")


def test_a_fact_refuses_options_that_it_does_not_take() -> None:
    def read(options: Mapping[str, Any]) -> Any:
        return options.get("MODEL", 0)

    fact = Metric("BATCH", read, "How many.", options=("MODEL",))
    assert fact.value({"MODEL": 3}, "TOY") == 3
    assert fact.value({"DEVICE_ID": "1"}, "TOY", ("DEVICE_ID",)) == 0
    with pytest.raises(PropertyError, match="TOY: BATCH takes the options MODEL, and 'MODL' was"):
        fact.value({"MODL": 3}, "TOY")
    with pytest.raises(PropertyError, match="takes no options, and 'X' was given"):
        Metric("NAME", lambda _: "n", "A name.").value({"X": 1}, "TOY")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 1),
        ({PERFORMANCE_HINT: "THROUGHPUT"}, 8),
        ({PERFORMANCE_HINT: "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 3}, 3),
        ({PERFORMANCE_HINT: "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 30}, 8),
        ({NUM_STREAMS: 5}, 5),
        ({NUM_STREAMS: 5, PERFORMANCE_HINT: "THROUGHPUT"}, 5),
        ({NUM_STREAMS: 5, "PERFORMANCE_HINT_NUM_REQUESTS": 2}, 5),
    ],
)
def test_streams_are_as_asked_or_follow_the_hints(
    config: Configuration, given: dict[Any, Any], expected: int
) -> None:
    assert stream_count(config.with_values(given), 8) == expected


@pytest.mark.parametrize(("requests", "slots"), [(0, 4), (1, 1), (4, 4), (9, 4)])
def test_slots_are_no_more_than_requests_in_flight(requests: int, slots: int) -> None:
    config = Configuration("X", STANDARD_PROPERTIES)
    given = config.with_values({"PERFORMANCE_HINT_NUM_REQUESTS": requests})
    assert slot_count(given, 4) == slots


def test_text_is_text() -> None:
    assert parse_text("a") == "a"
    with pytest.raises(ValueError, match="a string is wanted"):
        parse_text(b"a")
    assert LOG_LEVEL.default == "LOG_NONE"


def test_a_property_that_a_device_does_not_declare_has_its_default() -> None:
    config = Configuration("TOY", [NUM_STREAMS]).with_values({NUM_STREAMS: 3})
    assert config.value_or_default(NUM_STREAMS) == 3
    assert config.value_or_default(PERF_COUNT) is False
