"""Which models BATCH takes, and what it says of the others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import DeviceError, NotSupportedError, PropertyError

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'


def load(core: aioinfer.Core, text: str, device: str) -> aioinfer.ExecutableNetwork:
    return core.load_network(parser.parse_model(f"{HEADER} {text}"), device)


def test_a_batch_of_one_is_opened_where_rows_are_proved_apart(core: aioinfer.Core) -> None:
    text = (
        "(float[1, 2] x) => (float[1, 3] y) "
        "<float[2, 3] w = {1, 2, 3, 4, 5, 6}> { z = MatMul (x, w) y = Relu (z) }"
    )
    network = load(core, text, "BATCH:REFERENCE(4)")
    assert network.inputs[0].shape == ("batch", 2)
    assert network.outputs[0].shape == ("batch", 3)
    x = np.array([[1, -1], [2, 3]], np.float32)
    (y,) = network.create_infer_request().infer_sync(x).values()
    np.testing.assert_array_equal(y, np.maximum(x @ np.arange(1, 7).reshape(2, 3), 0))


@pytest.mark.parametrize("target", ["1, 2, 3", "1, -1", "1, 3, 1, 2", "1, 0"])
def test_a_batch_of_one_that_a_reshape_names_is_opened_with_the_others(
    core: aioinfer.Core, target: str
) -> None:
    rank = target.count(",") + 1
    ports = f"(float[1, 6] x) => (float[{', '.join('abcd'[:rank])}] z)"
    text = f"{ports} <int64[{rank}] s = {{{target}}}> {{ y = Reshape (x, s) z = Neg (y) }}"
    x = np.arange(18, dtype=np.float32).reshape(3, 6)
    alone = load(core, text, "REFERENCE").create_infer_request()
    expected = [alone.infer_sync(x[row : row + 1])["z"] for row in range(3)]
    found = load(core, text, "BATCH:REFERENCE(4)").create_infer_request().infer_sync(x)["z"]
    np.testing.assert_array_equal(found, np.concatenate(expected))


def test_two_reshapes_of_one_target_are_opened_where_each_may_be(core: aioinfer.Core) -> None:
    text = (
        "(float[1, 4] x) => (float[a, b, c] z) <int64[3] s = {1, 2, 2}, float[4] k = {1, 2, 3, 4}> "
        "{ y = Reshape (x, s) w = Reshape (k, s) z = Add (y, w) }"
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = load(core, text, "BATCH:REFERENCE(4)").create_infer_request().infer_sync(x)["z"]
    np.testing.assert_array_equal(found, (x + np.arange(1, 5)).reshape(3, 2, 2))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[1, 1, 2] x) => (float[a, b] y) <int64[1] ax = {1}, int64[2] s = {1, 2}> "
            "{ t = Transpose <perm = [1, 0, 2]> (x) y = Reshape (t, s) }",
            "Reshape",
        ),
        ("(float[b, 2] x) => (float[c, d] y) { y = Transpose (x) }", "rows along axis 1"),
        ("(float[b, 2] x) => (float[1, 2] y) { y = ReduceSum (x) }", r"ReduceSum \(node"),
        ("(float[4, 2] x) => (float[4, 2] y) { y = Relu (x) }", "no input has an open"),
        (
            "(float[b, 2] x, float[2] k) => (float[b, 2] y) { y = Add (x, k) }",
            "input 'k' has no batch",
        ),
        (
            "(float[1, 2] x) => (float[2] y) <int64[1] s = {2}> { y = Reshape (x, s) }",
            "Reshape",
        ),
    ],
)
def test_a_model_whose_answers_would_change_is_refused_with_the_reason(
    core: aioinfer.Core, text: str, reason: str
) -> None:
    with pytest.raises(NotSupportedError, match=reason) as raised:
        load(core, text, "BATCH:REFERENCE(4)")
    assert "Load it on REFERENCE itself" in str(raised.value)


def test_a_bare_name_takes_the_default_number_of_rows(core: aioinfer.Core) -> None:
    network = load(core, "(float[b, 2] x) => (float[b, 2] y) { y = Relu (x) }", "BATCH:REFERENCE")
    assert network.get_metric("MAX_BATCH_SIZE") == 32


@pytest.mark.parametrize("device", ["BATCH", "BATCH:REFERENCE.0,REFERENCE.1"])
def test_one_device_is_wanted(core: aioinfer.Core, device: str) -> None:
    with pytest.raises(DeviceError, match=r"name one, with the most rows"):
        load(core, "(float[b, 2] x) => (float[b, 2] y) { y = Relu (x) }", device)


def test_requests_that_keep_a_state_do_not_share_runs(core: aioinfer.Core) -> None:
    text = "(float[b, 2] x, float[b, 2] past) => (float[b, 2] now) { now = Add (x, past) }"
    model = parser.parse_model(f"{HEADER} {text}")
    with pytest.raises(NotSupportedError, match="keep a state"):
        core.load_network(model, "BATCH:REFERENCE(4)", {"STATE": {"past": "now"}})


def test_streams_are_the_device_s(core: aioinfer.Core) -> None:
    with pytest.raises(PropertyError, match="DEVICE_PROPERTIES"):
        core.set_config("BATCH", {"NUM_STREAMS": 2})


def test_no_run_waits_for_company_for_longer_than_anybody_would(core: aioinfer.Core) -> None:
    with pytest.raises(PropertyError, match="an integer 0 to 60000 is wanted"):
        core.set_config("BATCH", {"AUTO_BATCH_TIMEOUT": 60_001})
    core.set_config("BATCH", {"AUTO_BATCH_TIMEOUT": 60_000})
