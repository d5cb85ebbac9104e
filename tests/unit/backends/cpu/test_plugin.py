"""CPU as a device: what it says, honours, refuses, and makes of properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.passes import PASS_NAMES
from aioinfer.backends.cpu.precision import has_int8
from aioinfer.errors import DeviceError, PropertyError, UnsupportedOpError
from aioinfer.executors import allowed_cpus
from aioinfer.runtime.properties.properties import (
    STANDARD_PROPERTIES,
    Property,
)
from unit.backends.cpu.comparing import model_of, precisions

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
CPUS = allowed_cpus().count
KNOWN = precisions()


@pytest.fixture
def core() -> Iterator[Core]:
    """A Core of its own for each test: what one sets the next must not find."""
    with Core() as made:
        yield made


def tiny() -> Any:
    return model_of([helper.make_node("Tanh", ["x"], ["y"], "act")], {"x": X})


@pytest.mark.parametrize(
    ("key", "is_full"),
    [
        ("AVAILABLE_DEVICES", lambda value: value == ["0"]),
        ("FULL_DEVICE_NAME", lambda value: bool(value)),
        ("OPTIMIZATION_CAPABILITIES", lambda value: {"FP32", "DYNAMIC"} <= set(value)),
        ("RANGE_FOR_STREAMS", lambda value: value == (1, CPUS)),
        ("RANGE_FOR_ASYNC_INFER_REQUESTS", lambda value: value == (1, 2 * CPUS, 1)),
        ("SUPPORTED_METRICS", lambda value: "SUPPORTED_METRICS" in value),
        ("SUPPORTED_CONFIG_KEYS", lambda value: "CPU_DISABLED_PASSES" in value),
        ("SUPPORTED_PROPERTIES", lambda value: value["EXECUTION_MODE_HINT"] == "RW"),
    ],
)
def test_every_fact_has_an_answer(core: Core, key: str, is_full: Any) -> None:
    assert is_full(core.get_metric("CPU", key))


def test_capabilities_are_those_of_the_processor(core: Core) -> None:
    names = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
    found = core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES")
    int8 = ["INT8"] if has_int8(open_engine().instruction_set) else []
    assert found == [*(names[known] for known in KNOWN), *int8, "DYNAMIC", "EXPORT_IMPORT"]


@pytest.mark.parametrize("declared", STANDARD_PROPERTIES, ids=lambda declared: declared.key)
def test_every_property_can_be_read_written_back_and_given_to_a_network(
    core: Core, declared: Property[Any]
) -> None:
    key = declared.key
    value = core.get_config("CPU", key)
    if declared.only_at_load:
        with pytest.raises(PropertyError, match=f"{key} belongs to one network"):
            core.set_config("CPU", {key: value})
    else:
        core.set_config("CPU", {key: value})
    with core.load_network(tiny(), "CPU", {key: value}) as network:
        told = network.get_config(key)
    assert told == (1 if key == "NUM_STREAMS" else value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("NUM_STREAMS", 0, r"set NUM_STREAMS to AUTO, or to 1 or more \(given: 0\)"),
        ("NUM_STREAMS", "NUMA", "does not place its streams on NUMA nodes"),
        ("NUM_STREAMS", -10, "bad value -10 for NUM_STREAMS"),
        ("INFERENCE_NUM_THREADS", -1, "bad value -1 for INFERENCE_NUM_THREADS"),
        ("INFERENCE_PRECISION_HINT", "tf32", "cannot honour INFERENCE_PRECISION_HINT='tf32'"),
        ("INFERENCE_PRECISION_HINT", "f8", "bad value 'f8' for INFERENCE_PRECISION_HINT"),
        ("EXECUTION_MODE_HINT", "FAST", "bad value 'FAST' for EXECUTION_MODE_HINT"),
        ("ENABLE_CPU_PINNING", "maybe", "bad value 'maybe' for ENABLE_CPU_PINNING"),
        ("CPU_DISABLED_PASSES", "epilog fusion", "there is no pass 'epilog fusion'.*epilogue"),
        ("CPU_DISABLED_PASSES", 123, "123 .*: names of passes, separated by commas, .*epilogue"),
        ("CPU_DISABLED_PASSES", [1], "names of passes, separated by commas, are wanted"),
        ("CPU_DISABLE_PASSES", "", "CPU has no property 'CPU_DISABLE_PASSES'; did you mean"),
    ],
)
def test_what_it_cannot_honour_is_refused(core: Core, key: str, value: Any, message: str) -> None:
    with pytest.raises(PropertyError, match=message):
        core.load_network(tiny(), "CPU", {key: value})
    with pytest.raises(PropertyError):
        core.set_config("CPU", {key: value})


def test_precisions_that_the_processor_lacks_are_refused(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(open_engine()), "instruction_set", property(lambda self: 0x27))
    for hint in ("bf16", "f16"):
        with pytest.raises(PropertyError, match=f"no instructions for {hint}; it has f32"):
            core.load_network(tiny(), "CPU", {"INFERENCE_PRECISION_HINT": hint})
    found = core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES")
    assert found == ["FP32", "DYNAMIC", "EXPORT_IMPORT"]
    with core.load_network(tiny(), "CPU", {"EXECUTION_MODE_HINT": "PERFORMANCE"}) as network:
        assert network.get_config("INFERENCE_PRECISION_HINT") == "f32"


def test_the_execution_mode_chooses_the_precision_unless_the_hint_does(core: Core) -> None:
    fast = "bf16" if "bf16" in KNOWN else "f32"
    for config, wanted in [
        ({}, "f32"),
        ({"EXECUTION_MODE_HINT": "ACCURACY"}, "f32"),
        ({"EXECUTION_MODE_HINT": "PERFORMANCE"}, fast),
        ({"EXECUTION_MODE_HINT": "PERFORMANCE", "INFERENCE_PRECISION_HINT": "f32"}, "f32"),
    ]:
        with core.load_network(tiny(), "CPU", config) as network:
            assert network.get_config("INFERENCE_PRECISION_HINT") == wanted


@pytest.mark.parametrize(
    ("config", "streams"),
    [
        ({}, 1),
        ({"PERFORMANCE_HINT": "THROUGHPUT"}, CPUS),
        ({"NUM_STREAMS": 3}, 3),
        ({"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 1}, 1),
    ],
)
def test_a_network_says_how_many_streams_it_got(
    core: Core, config: dict[str, Any], streams: int
) -> None:
    with core.load_network(tiny(), "CPU", config) as network:
        assert network.get_config("NUM_STREAMS") == streams
        assert network.optimal_request_count == 2 * streams
        assert network.device == "CPU.0"


def test_passes_can_be_switched_off_by_name(core: Core) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Relu", ["a"], ["y"], "act"),
    ]
    model = model_of(nodes, {"x": X}, constants={"w": np.eye(4, dtype=np.float32)})
    results = []
    for disabled in ("", ", ".join(PASS_NAMES)):
        with core.load_network(model, "CPU", {"CPU_DISABLED_PASSES": disabled}) as network:
            results.append(network.create_infer_request().infer_sync(X)["y"])
            names = [node.fused_from for node in network.runtime_graph().nodes]
            assert len(names) == (2 if disabled else 1)
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-6)


def test_disabled_passes_belong_to_one_network(core: Core) -> None:
    with pytest.raises(PropertyError, match="belongs to one network; give it to load_network"):
        core.set_config("CPU", {"CPU_DISABLED_PASSES": PASS_NAMES[0]})


def test_what_has_no_kernel_is_refused_with_the_node(core: Core) -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Bernoulli", ["a"], ["y"], "drawn"),
    ]
    model = model_of(nodes, {"x": np.zeros((3, 3), np.float32)})
    support = core.query_network(model, "CPU")
    assert not support["drawn"].supported
    assert "CPU has no kernel for Bernoulli" in support["drawn"].reason
    with pytest.raises(UnsupportedOpError, match="drawn"):
        core.load_network(model, "CPU")
    with core.load_network(model, "HETERO:CPU,REFERENCE") as network:
        network.create_infer_request().infer_sync(np.eye(3, dtype=np.float32))


def test_another_device_number_is_refused(core: Core) -> None:
    with pytest.raises(DeviceError, match="CPU has no device '99999': this process may use"):
        core.load_network(tiny(), "CPU.99999")


@pytest.mark.parametrize(
    "body",
    [
        "() => (string[2] y) { y = Constant <value_strings: strings = ['a', 'b']> () }",
        "(string[2] s, float[2] x) => (string[2] s, float[2] y) { y = Relu (x) }",
    ],
)
def test_texts_pass_where_no_node_reads_them(core: Core, body: str) -> None:
    text = f"<ir_version: 10, opset_import: ['': 21]> texts {body}".replace("'", '"')
    model = onnx.parser.parse_model(text)
    given = {"s": np.array(["a", "b"], object), "x": np.array([-1, 2], np.float32)}
    given = {name: given[name] for name in [item.name for item in model.graph.input]}
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(given)
    texts = found["s"] if "s" in given else found["y"]
    assert texts.tolist() == ["a", "b"]
    if "x" in given:
        assert found["y"].tolist() == [0, 2]
