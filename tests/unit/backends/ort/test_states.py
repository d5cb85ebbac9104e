"""States on ONNXRUNTIME: its own values, which no run copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.ort.kept_value import OrtKept
from onnx_text import parse_proto

SUM = parse_proto("""
    g (float[n,m] x, float[n,m] past) => (float[n,m] y, float[n,m] present) {
        present = Add (past, x)
        y = Neg (present)
    }
""")
STATE = {"STATE": {"past": "present"}}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def kept_of(request: aioinfer.InferRequest) -> Any:
    """What the next run reads, and not a copy of it."""
    kept = request.kept_states
    assert kept is not None
    (value,) = kept.values.values()
    return value


@pytest.mark.parametrize("device", ["ONNXRUNTIME", "HETERO:ONNXRUNTIME,CPU"])
def test_a_state_stays_onnxruntimes_own_until_it_is_asked_for(
    core: aioinfer.Core, device: str
) -> None:
    with core.load_network(SUM, device, STATE) as network:
        request = network.create_infer_request()
        seen = []
        for count in range(1, 6):
            y = request.infer_sync({"x": X.T.copy().T})["y"]
            np.testing.assert_array_equal(y, -count * X)
            seen.append(kept_of(request))
        assert all(type(value) is OrtKept for value in seen)
        assert not any(value.is_on_host for value in seen)
        for count, value in enumerate(seen, 1):
            np.testing.assert_array_equal(value.host(), count * X)
        (state,) = request.query_state()
        np.testing.assert_array_equal(state.state, 5 * X)
        state.state = X
        assert request.infer_sync({"x": X})["y"][1, 2] == -10


@pytest.mark.parametrize("op", ["Identity", "Reshape", "Dropout"])
def test_a_state_shares_no_memory_with_what_the_caller_gives(core: aioinfer.Core, op: str) -> None:
    given = "x, same" if op == "Reshape" else "x"
    model = parse_proto(f"""
        g (float[2,3] x, float[2,3] past) => (float[2,3] y, float[2,3] present)
        <int64[2] same = {{2, 3}}> {{
            y = Neg (past)
            present = {op} ({given})
        }}
    """)
    with core.load_network(model, "ONNXRUNTIME", STATE) as network:
        request = network.create_infer_request()
        x = X.copy()
        request.infer_sync({"x": x})
        x[:] = np.nan
        np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], -X)


def test_a_state_that_is_handed_through_is_not_lost(core: aioinfer.Core) -> None:
    model = parse_proto("""
        g (float[2,3] x, float[2,3] past) => (float[2,3] y, float[2,3] present) {
            y = Add (past, x)
            present = Identity (past)
        }
    """)
    with core.load_network(model, "ONNXRUNTIME", STATE) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        given = X.copy()
        state.state = given
        given[:] = np.nan
        for _ in range(4):
            np.testing.assert_array_equal(request.infer_sync({"x": X})["y"], 2 * X)


def test_what_goes_through_a_cast_or_beside_text_is_copied_and_right(core: aioinfer.Core) -> None:
    model = parse_proto("""
        g (float[2] x, bfloat16[2] past, string[2] words, float[2] sum)
        => (float[2] y, bfloat16[2] present, string[2] told, float[2] total) {
            short = Cast <to = 16> (x)
            wide = Cast <to = 1> (past)
            y = Add (wide, x)
            present = Cast <to = 16> (y)
            told = Identity (words)
            total = Add (sum, x)
        }
    """)
    config = {"STATE": {"past": "present", "sum": "total"}}
    with core.load_network(model, "ONNXRUNTIME", config) as network:
        request = network.create_infer_request()
        x, words = np.array([1, 2], np.float32), np.array(["a", "b"], object)
        for count in range(1, 4):
            found = request.infer_sync({"x": x, "words": words})
            np.testing.assert_array_equal(found["y"], count * x)
            assert list(found["told"]) == ["a", "b"]
    model.graph.input.pop(2), model.graph.output.pop(2), model.graph.node.pop(4)
    with core.load_network(model, "ONNXRUNTIME", config) as network:
        request = network.create_infer_request()
        for count in range(1, 4):
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], count * x)
        kept = request.kept_states
        assert kept is not None
        assert type(kept.values["sum"]) is OrtKept
        assert isinstance(kept.values["past"], np.ndarray)


def test_no_state_holds_on_to_the_ones_before(core: aioinfer.Core) -> None:
    with core.load_network(SUM, "ONNXRUNTIME", STATE) as network:
        request = network.create_infer_request()
        x = np.ones((1000, 1000), np.float32)
        for _ in range(4):
            request.infer_sync({"x": x})
        before = _resident_bytes()
        for _ in range(60):
            request.infer_sync({"x": x})
        assert _resident_bytes() - before < 20 * x.nbytes


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        pytest.skip("only Linux tells what a process has in memory")


def test_an_output_that_stays_is_read_by_other_networks_and_downloaded_once(
    core: aioinfer.Core,
) -> None:
    config = {"OUTPUT_LOCATION": {"y": "DEVICE"}}
    zeros = np.zeros_like(X)
    with (
        core.load_network(SUM, "ONNXRUNTIME", config) as first,
        core.load_network(SUM, "ONNXRUNTIME") as second,
        core.load_network(SUM, "REFERENCE") as elsewhere,
    ):
        made = first.create_infer_request().infer_sync({"x": X, "past": zeros})
        y = made["y"]
        assert isinstance(y, aioinfer.Tensor)
        assert y.device == "ONNXRUNTIME.CPU"
        assert isinstance(made["present"], np.ndarray)
        for network in (second, elsewhere):
            found = network.create_infer_request().infer_sync({"x": y, "past": zeros})
            np.testing.assert_array_equal(found["y"], X)
        array = y.numpy()
        assert y.numpy() is array
        np.testing.assert_array_equal(array, -X)
        np.testing.assert_array_equal(np.from_dlpack(y), -X)
        request = first.create_infer_request()
        mine = np.zeros_like(X)
        request.set_tensor("y", mine)
        assert request.infer_sync({"x": X, "past": zeros})["y"] is mine
        np.testing.assert_array_equal(mine, -X)
        with pytest.raises(aioinfer.errors.TensorError):
            request.set_tensor("y", y)
