"""Networks that share runs though only their device was named: only where both words were said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.errors import PropertyError

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
APART = "(float[b, 2] x) => (float[b, 2] y) { y = Relu (x) }"
TOGETHER = "(float[b, 2] x) => (float[c, d] y) { y = Transpose (x) }"
BOTH = {"PERFORMANCE_HINT": "THROUGHPUT", "ALLOW_AUTO_BATCHING": True}


def load(
    core: aioinfer.Core, text: str = APART, device: str = "REFERENCE", **config: Any
) -> aioinfer.ExecutableNetwork:
    return core.load_network(parser.parse_model(f"{HEADER} {text}"), device, config)


@pytest.mark.parametrize("device", ["REFERENCE", "REFERENCE.0", "reference:0", "AUTO:REFERENCE"])
def test_both_words_together_share_runs_and_it_is_shown(core: aioinfer.Core, device: str) -> None:
    network = load(core, device=device, **BOTH, NUM_STREAMS=3, DEFAULT_DEADLINE_S=50)
    assert network.get_metric("EXECUTION_DEVICES") == ["BATCH:REFERENCE.0(32)"]
    assert "share a run, of up to 32 rows" in network.explain()
    assert network.get_config("DEFAULT_DEADLINE_S") == 50
    assert isinstance(network, BatchNetwork)
    assert network.compiled.get_config("NUM_STREAMS") == 3
    assert network.compiled.get_config("PERFORMANCE_HINT") == "THROUGHPUT"
    x = np.array([[1, -1]], np.float32)
    np.testing.assert_array_equal(network.create_infer_request().infer_sync(x)["y"], [[1, 0]])


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"PERFORMANCE_HINT": "THROUGHPUT"},
        {"ALLOW_AUTO_BATCHING": True},
        {**BOTH, "ALLOW_AUTO_BATCHING": "NO"},
        {**BOTH, "PERFORMANCE_HINT_NUM_REQUESTS": 2},
    ],
)
def test_one_word_alone_does_not(core: aioinfer.Core, config: dict[str, Any]) -> None:
    network = load(core, **config)
    assert network.get_metric("EXECUTION_DEVICES") == ["REFERENCE.0"]
    assert network.get_metric("BATCHING_REFUSAL") == "none"


def test_no_more_rows_go_together_than_requests_are_in_flight(core: aioinfer.Core) -> None:
    network = load(core, **BOTH, PERFORMANCE_HINT_NUM_REQUESTS=4)
    assert network.get_metric("MAX_BATCH_SIZE") == 4


@pytest.mark.parametrize("device", ["REFERENCE", "BATCH:REFERENCE(8)"])
def test_what_is_refused_runs_alone_and_says_why(core: aioinfer.Core, device: str) -> None:
    config: dict[str, Any] = BOTH if device == "REFERENCE" else {"ALLOW_UNBATCHED": True}
    network = load(core, TOGETHER, device, **config)
    assert network.get_metric("EXECUTION_DEVICES") == ["REFERENCE.0"]
    assert "rows along axis 1" in network.get_metric("BATCHING_REFUSAL")
    assert "requests do not share runs: " in network.explain()
    x = np.array([[1, -1]], np.float32)
    np.testing.assert_array_equal(network.create_infer_request().infer_sync(x)["y"], x.T)


def test_what_keeps_a_state_runs_alone(core: aioinfer.Core) -> None:
    text = "(float[b, 2] x, float[b, 2] past) => (float[b, 2] now) { now = Add (x, past) }"
    network = load(core, text, **BOTH, STATE={"past": "now"})
    assert network.get_metric("EXECUTION_DEVICES") == ["REFERENCE.0"]


@pytest.mark.parametrize("device", ["HETERO:REFERENCE", "BATCH:REFERENCE(8)"])
def test_devices_made_of_devices_want_it_written(core: aioinfer.Core, device: str) -> None:
    with pytest.raises(PropertyError, match="ALLOW_AUTO_BATCHING"):
        load(core, device=device, **BOTH)
    inside = {"REFERENCE": {"ALLOW_AUTO_BATCHING": True}}
    with pytest.raises(PropertyError, match=r"write BATCH:REFERENCE\(8\) instead"):
        load(core, device=device, DEVICE_PROPERTIES=inside)
