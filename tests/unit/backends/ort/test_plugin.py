import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.ort import session
from aioinfer.backends.ort.executable_network import OrtNetwork
from aioinfer.errors import (
    DeviceError,
    NotSupportedError,
    PropertyError,
    TensorError,
    UnsupportedOpError,
)
from onnx_text import parse_proto

RELU = parse_proto("g (float[n, 3] x) => (float[n, 3] y) { [act] y = Relu (x) }")
HALF_KNOWN = parse_proto(
    """g (bfloat16[4] x) => (float[4] y) { [cast] a = Cast <to = 1> (x) [act] b = Relu (x)
       [back] c = Cast <to = 1> (b) [add] y = Add (a, c) }"""
)
X = np.array([[-1, 0, 2]], np.float32)


def test_the_provider_that_every_onnxruntime_has_is_the_first_device(core: aioinfer.Core) -> None:
    assert core.get_metric("ONNXRUNTIME", "AVAILABLE_DEVICES")[0] == "CPU"
    name = core.get_metric("ONNXRUNTIME.CPU", "FULL_DEVICE_NAME")
    assert "CPUExecutionProvider" in name


def test_a_listed_provider_that_cannot_start_is_no_device(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ["CUDAExecutionProvider", session.CPU_PROVIDER]
    monkeypatch.setattr("aioinfer.backends.ort.plugin.available_providers", lambda: listed)
    assert core.get_metric("ONNXRUNTIME", "AVAILABLE_DEVICES") == ["CPU"]
    with pytest.raises(DeviceError, match=r"no device 'CUDA'.*ONNXRUNTIME\.CPU"):
        core.load_network(RELU, "ONNXRUNTIME.CUDA")


def test_without_onnxruntime_the_device_says_how_to_get_it(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert r"pip install aioinfer[onnxruntime]" in (core.why_missing("ONNXRUNTIME") or "")


def test_capabilities_are_what_sessions_can_be_made_of(core: aioinfer.Core) -> None:
    found = core.get_metric("ONNXRUNTIME", "OPTIMIZATION_CAPABILITIES")
    assert {"FP32", "FP64", "INT8", "DYNAMIC"} <= set(found)
    assert "BF16" not in found


def test_a_query_gives_onnxruntimes_reasons(core: aioinfer.Core) -> None:
    answers = core.query_network(HALF_KNOWN, "ONNXRUNTIME")
    refused = {name: answer.reason for name, answer in answers.items() if not answer.supported}
    assert refused == {"act": "Could not find an implementation for Relu(13) node with name 'act'"}


def test_a_model_with_an_unknown_node_is_refused_by_that_node(core: aioinfer.Core) -> None:
    with pytest.raises(
        UnsupportedOpError, match=r"Relu \(node 'act'\).*HETERO:ONNXRUNTIME"
    ) as info:
        core.load_network(HALF_KNOWN, "ONNXRUNTIME")
    assert info.value.node == "act"


@pytest.mark.parametrize("devices", ["ONNXRUNTIME,REFERENCE", "REFERENCE,ONNXRUNTIME"])
def test_another_device_takes_what_onnxruntime_cannot(core: aioinfer.Core, devices: str) -> None:
    x = np.array([-2, -1, 0, 3]).astype("bfloat16")
    with core.load_network(HALF_KNOWN, f"HETERO:{devices}") as network:
        (y,) = network.create_infer_request().infer_sync(x).values()
        used = network.execution_devices
    np.testing.assert_array_equal(y, [-2, -1, 0, 6])
    assert ("ONNXRUNTIME.CPU" in used) == devices.startswith("ONNXRUNTIME")
    assert "REFERENCE.0" in used


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"INFERENCE_PRECISION_HINT": "bf16"}, "INFERENCE_PRECISION_HINT"),
        ({"PERF_COUNT": True}, "ORT_PROFILE_PREFIX"),
        ({"ORT_EXECUTION_MODE": "BOTH"}, "SEQUENTIAL"),
        ({"ORT_GRAPH_OPTIMISATION_LEVEL": "ENABLE_ALL"}, "ORT_GRAPH_OPTIMIZATION_LEVEL"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_a_way_out(
    core: aioinfer.Core, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        core.load_network(RELU, "ONNXRUNTIME", config)


def test_a_bad_provider_option_is_refused_in_onnxruntimes_words(core: aioinfer.Core) -> None:
    config = {"ORT_SESSION_CONFIG": {"session.intra_op_thread_affinities": "nonsense"}}
    with pytest.raises(NotSupportedError, match=r"ONNXRUNTIME\.?\w* cannot load model 'g': \w+"):
        core.load_network(RELU, "ONNXRUNTIME", {**config, "INFERENCE_NUM_THREADS": 2})


def test_shapes_compiled_ahead_are_checked_and_run(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[int, ...]] = []
    run = session.Session.run

    def noted(own: session.Session, inputs: Any, terminator: Any) -> Any:
        ran.append(inputs["x"].shape)
        return run(own, inputs, terminator)

    monkeypatch.setattr(session.Session, "run", noted)
    with core.load_network(RELU, "ONNXRUNTIME", {"INPUT_SHAPES": {"x": (2, 3)}}):
        assert ran == [(2, 3)]
    with pytest.raises(TensorError, match="axis 1"):
        core.load_network(RELU, "ONNXRUNTIME", {"INPUT_SHAPES": {"x": (2, 4)}})


@pytest.mark.parametrize(
    ("config", "pool", "slots"),
    [
        ({"INFERENCE_NUM_THREADS": 3}, 3, 2),
        ({"INFERENCE_NUM_THREADS": 4, "NUM_STREAMS": 2}, 3, 4),
        ({"INFERENCE_NUM_THREADS": 2, "NUM_STREAMS": 5}, 1, 10),
        ({"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "THROUGHPUT"}, 1, 2),
    ],
)
def test_streams_call_one_session_and_share_its_threads(
    core: aioinfer.Core, config: dict[str, Any], pool: int, slots: int
) -> None:
    with core.load_network(RELU, "ONNXRUNTIME", config) as network:
        assert isinstance(network, OrtNetwork)
        options = network.session.get_session_options()
        assert options.intra_op_num_threads == pool
        assert network.optimal_request_count == slots
        assert network.get_config("NUM_STREAMS") == slots // 2


def test_options_reach_the_session(core: aioinfer.Core) -> None:
    config = {
        "ORT_SESSION_CONFIG": {"session.intra_op.allow_spinning": 0},
        "ORT_GRAPH_OPTIMIZATION_LEVEL": "ENABLE_BASIC",
        "LOG_LEVEL": "LOG_WARNING",
    }
    with core.load_network(RELU, "ONNXRUNTIME", config) as network:
        assert isinstance(network, OrtNetwork)
        options = network.session.get_session_options()
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
        assert "BASIC" in str(options.graph_optimization_level)
        assert options.log_severity_level == 2


def test_onnxruntimes_own_profile_is_written_when_the_network_closes(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    config = {"ORT_PROFILE_PREFIX": str(tmp_path / "profile")}
    with core.load_network(RELU, "ONNXRUNTIME", config) as network:
        network.create_infer_request().infer_sync(X)
    (file,) = tmp_path.glob("profile*.json")
    assert "act" in file.read_text(encoding="utf-8")


def test_a_node_whose_function_body_is_of_an_older_opset_still_runs(core: aioinfer.Core) -> None:
    model = parse_proto("g (float[3] x) => (float[3] y) { y = Swish (x) }", opset=24)
    x = np.array([-1, 0, 2], np.float32)
    with core.load_network(model, "ONNXRUNTIME") as network:
        (y,) = network.create_infer_request().infer_sync(x).values()
    np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-6)


def test_what_onnxruntime_cannot_optimise_runs_as_it_is(
    core: aioinfer.Core, caplog: pytest.LogCaptureFixture
) -> None:
    # Once the If is inlined, onnxruntime sees that Range gets vectors, and refuses; both run it.
    model = parse_proto(
        """g (int64[2] n) => (int64[k] y) {
            yes = Constant <value = bool {1}> () one = Constant <value_ints = [3]> ()
            zero = Constant <value_int = 0> () step = Constant <value_int = 1> ()
            limit = If (yes) <then_branch = t () => (int64[1] a) { a = Identity (one) },
                else_branch = e () => (int64[m] b) { b, c = Split <num_outputs = 2> (n) }>
            y = Range (zero, limit, step) }"""
    )
    with caplog.at_level(logging.WARNING, "aioinfer.ONNXRUNTIME"):
        network = core.load_network(model, "ONNXRUNTIME")
    with network:
        (y,) = network.create_infer_request().infer_sync(np.zeros(2, np.int64)).values()
    assert y.tolist() == [0, 1, 2]
    assert "DISABLE_ALL" in caplog.text
