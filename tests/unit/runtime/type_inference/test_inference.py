"""Types of whole graphs: what a contradiction does, and who has the last word."""

from __future__ import annotations

import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import DType, Model, SequenceType, TensorType
from aioinfer.runtime.type_inference import (
    ContradictionError,
    correct_graph_types,
    infer_graph_types,
)
from onnx_text import parse

BEHIND_NONZERO = """
g (float[2,3] x, float[4] z) => (int64[2,m] p, float[9] y) {
    p = NonZero(x) t = Relu(x) y = Add(t, z)
}
"""


def unread(text: str) -> Model:
    """Parse a graph that reading would refuse: first a possible one, then its input is changed."""
    model = parse(text.replace("float[4] z", "float[3] z"))
    for value in model.graph.inputs:
        if value.name == "z":
            value.type = TensorType(DType.FLOAT32, (4,))
    return model


def test_a_contradiction_names_the_node_and_what_it_is_given_and_changes_nothing() -> None:
    model = unread("g (float[2,3] x, float[4] z) => (float[9] y) { t = Relu(x) y = Add(t, z) }")
    before = [value.type for node in model.graph.nodes for value in node.outputs]
    with pytest.raises(ContradictionError) as caught:
        infer_graph_types(model.graph)
    name = list(model.graph.nodes)[1].name
    assert isinstance(caught.value, ModelError)
    for part in (f"Add (node {name!r})", "[2,3]", "[4]", "broadcast", "'z' float32[4]"):
        assert part in str(caught.value)
    assert [value.type for node in model.graph.nodes for value in node.outputs] == before


def test_a_contradiction_behind_a_node_without_a_rule_is_found() -> None:
    model = unread(BEHIND_NONZERO)
    assert not infer_graph_types(model.graph)
    with pytest.raises(ContradictionError, match="Add"):
        correct_graph_types(model.graph)


def test_a_length_that_a_rule_leaves_open_is_told_by_nothing_else() -> None:
    model = parse(
        "g (float[2,k] x) => (int64[2,m] p, float[w,v] y) { p = NonZero(x) y = Transpose(x) }"
    )
    y = list(model.graph.nodes)[1].outputs[0]
    y.type = TensorType(DType.FLOAT32, (5, 7))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, ("k", 2))
    model.graph.inputs[0].type = TensorType(DType.FLOAT32, (2, None))
    y.type = TensorType(DType.FLOAT32, (5, 7))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, (None, 2))
    y.type = TensorType(DType.INT32, (5,))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, (None, 2))


def test_lengths_without_a_rule_are_opened_with_all_that_follows_from_them() -> None:
    model = parse("""
    g (float[2,k] x, float[4] z) => (int64[2,m] p, int64[m,2] q, float[2,k] y) {
        p = NonZero(x) q = Transpose(p) y = Relu(x)
    }
    """)
    p, q, y = (node.outputs[0] for node in model.graph.nodes)
    p.type, q.type = TensorType(DType.INT64, (2, 6)), TensorType(DType.INT64, (6, 2))
    y.type = TensorType(DType.FLOAT32, (9, 9))
    correct_graph_types(model.graph)
    assert p.type == q.type == TensorType(DType.INT64, (None, None))
    assert y.type == TensorType(DType.FLOAT32, (2, "k"))


def test_the_lengths_of_what_a_sequence_holds_are_opened() -> None:
    model = parse("""
    g (float[7] x) => (seq(float[7]) s) { s = SequenceConstruct(x, x) }
    """)
    (s,) = next(iter(model.graph.nodes)).outputs
    s.type = SequenceType(TensorType(DType.FLOAT32, (9,)))
    correct_graph_types(model.graph)
    assert s.type == SequenceType(TensorType(DType.FLOAT32, (None,)))


def test_what_is_said_of_custom_operators_stays() -> None:
    model = parse("""
    g (float[2,k] x, float[4] z) => (float[a,b] y) { t = com.acme.Swirl(x) y = Relu(t) }
    """)
    t, y = (node.outputs[0] for node in model.graph.nodes)
    t.type = TensorType(DType.FLOAT32, (3, 5))
    correct_graph_types(model.graph)
    assert t.type == y.type == TensorType(DType.FLOAT32, (3, 5))
