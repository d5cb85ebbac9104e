"""Branches and loops that are read without onnx, beside what onnx's own means make of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from aioinfer.runtime.onnx_reader.onnx_models import read_any_model
from aioinfer.runtime.onnx_reader.plain.plain_opsets import NEWEST_OPSET
from aioinfer.runtime.onnx_reader.plain.plain_reader import read_plain_bytes
from aioinfer.runtime.onnx_reader.wire import limits
from aioinfer.runtime.onnx_reader.wire.limits import LimitError
from unit.runtime.onnx_native.same_models import first_difference
from unit.runtime.onnx_reader.plain.models import (
    BRANCHES,
    model_bytes,
    parsed,
    single_node,
    with_branches,
)


@pytest.mark.parametrize("opset", [13, 17, 18, NEWEST_OPSET])
@pytest.mark.parametrize("then", [key for key in BRANCHES if key != "as long as the data"])
def test_branches_are_read_as_onnx_reads_them(then: str, opset: int) -> None:
    text = BRANCHES[then]
    if opset >= 18:
        text = text.replace("Split <axis = 0>", "Split <axis = 0, num_outputs = 2>")
    data = with_branches(text, opset=opset)
    ours = read_plain_bytes(data)
    assert ours is not None
    assert first_difference(ours, read_any_model(data)) is None


LOOPS = {
    "a state that stays": """y = Loop (count, go, x) <body = b (int64 i, bool on, float[2, 3] s)
        => (bool still, float[2, 3] next) { still = Identity (on) next = Neg (s) }>""",
    "a state that grows": """y = Loop (count, "", x) <body = b (int64 i, bool on, float[a, 3] s)
        => (bool still, float[d, 3] next) { still = Identity (on)
        next = Concat <axis = 0> (s, x) }>""",
    "what is collected": """z, y = Loop ("", go, x) <body = b (int64 i, bool on, float[2, 3] s)
        => (bool still, float[2, 3] next, float[2, 3] item) { f = ReduceSum <keepdims = 0> (s)
        still = Cast <to = 9> (f) next = Relu (s) item = Mul (s, x) }>""",
    "a counter in a list": """y = Loop (count, "", x) <body = b (int64[1] i, bool on, float[2, 3] s)
        => (bool still, float[2, 3] next) { still = Identity (on) f = Cast <to = 1> (i)
        next = Add (s, f) }>""",
    "a scan": """z, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
        body = b (float[2] s, float[2] e) => (float[2] n, float[2] o) {
        n = Add (s, e) o = Neg (n) }> (w, x)""",
    "one in another": """y = Loop (count, go, x) <body = b (int64 i, bool on, float[2, 3] s)
        => (bool still, float[2, 3] next) { still = Identity (on)
        next = Loop (i, on, s) <body = c (int64 j, bool on_, float[2, 3] t)
            => (bool still_, float[2, 3] u) { still_ = Identity (on_) u = Add (t, x) }> }>""",
    "one in a branch": """y = If (go) <then_branch = a () => (float[2, 3] p) {
            p = Loop (count, go, x) <body = b (int64 i, bool on, float[2, 3] s)
            => (bool still, float[2, 3] next) { still = Identity (on) next = Neg (s) }> },
        else_branch = d () => (float[2, 3] q) { q = Abs (x) }>""",
}


@pytest.mark.parametrize("opset", [17, NEWEST_OPSET])
@pytest.mark.parametrize("nodes", LOOPS)
def test_loops_are_read_as_onnx_reads_them(nodes: str, opset: int) -> None:
    graph = f"""g (float[2, 3] x, float[2] w, int64 count, bool go) => (float y) {{
        {LOOPS[nodes]} }}"""
    data = parsed(graph, opset)
    ours = read_plain_bytes(data)
    assert ours is not None
    assert first_difference(ours, read_any_model(data)) is None


def test_a_constant_that_only_a_branch_reads_is_read() -> None:
    ours = read_plain_bytes(with_branches(BRANCHES["nested"]))
    assert ours is not None
    np.testing.assert_array_equal(ours.graph.initializers["w"].constant, np.float32([2]))


def test_branches_deep_inside_each_other_are_refused_by_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_DEPTH", 2)
    assert read_plain_bytes(with_branches(BRANCHES["nested"])) is not None
    monkeypatch.setattr(limits, "MOST_DEPTH", 1)
    with pytest.raises(LimitError, match="over 1 bodies inside each other"):
        read_plain_bytes(with_branches(BRANCHES["nested"]))


def test_nodes_in_branches_count_among_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    data = with_branches(BRANCHES["constants"])
    monkeypatch.setattr(limits, "MOST_NODES", 6)
    assert read_plain_bytes(data) is not None
    monkeypatch.setattr(limits, "MOST_NODES", 5)
    with pytest.raises(LimitError, match="over 5 nodes"):
        read_plain_bytes(data)


def test_a_large_branch_is_left_to_onnx() -> None:
    weights = numpy_helper.from_array(np.ones((512, 1024), np.float32), "w")
    body = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["b"])],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("b")],
        [weights],
    )
    flag = numpy_helper.from_array(np.array(True), "flag")
    node = single_node("If", "flag", then_branch=body, else_branch=body)
    assert read_plain_bytes(model_bytes([node], initializer=[flag])) is None
