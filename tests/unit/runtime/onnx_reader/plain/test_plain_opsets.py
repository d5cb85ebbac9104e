"""The tables of opsets, held against onnx's schemas."""

from __future__ import annotations

from collections.abc import Iterator

import onnx.defs
import pytest

from aioinfer.runtime.graph import Node
from aioinfer.runtime.onnx_reader.plain.plain_fields import NotPlainError
from aioinfer.runtime.onnx_reader.plain.plain_opsets import (
    _CHANGES_BEFORE_18,
    _FROM,
    NEWEST_OPSET,
    OLDEST_OPSET,
    upgrade,
)
from aioinfer.runtime.onnx_reader.plain.plain_proto import PlainNode
from aioinfer.runtime.type_inference import find_rule

TYPED = sorted(
    schema.name
    for schema in onnx.defs.get_all_schemas()
    if not schema.domain and find_rule(Node(schema.name, (), (), name="node")) is not None
)

ONLY_FLOAT8 = "counts for float8, which came together with it"
AS_BEFORE = "the default is what was always done"
OFF = "left out, or 0, it asks for nothing"
HARMLESS = {
    "AveragePool": {"dilations": OFF},
    "Cast": {"saturate": ONLY_FLOAT8, "round_mode": ONLY_FLOAT8},
    "CastLike": {"saturate": ONLY_FLOAT8, "round_mode": ONLY_FLOAT8},
    "DequantizeLinear": {"block_size": OFF, "output_dtype": OFF},
    "GRU": {"layout": AS_BEFORE},
    "LSTM": {"layout": AS_BEFORE},
    "LpPool": {"ceil_mode": AS_BEFORE, "dilations": OFF},
    "Pad": {"axes": OFF},
    "QuantizeLinear": {
        "block_size": OFF,
        "output_dtype": OFF,
        "precision": OFF,
        "saturate": ONLY_FLOAT8,
    },
    "RNN": {"layout": AS_BEFORE},
    "Reshape": {"allowzero": AS_BEFORE},
    "Resize": {"antialias": OFF, "axes": OFF, "keep_aspect_ratio_policy": AS_BEFORE},
    "ScatterElements": {"reduction": AS_BEFORE},
    "ScatterND": {"reduction": AS_BEFORE},
    "Shape": {"end": OFF, "start": AS_BEFORE},
}
"""What operators have learnt since OLDEST_OPSET and old nodes need not say, with the reason."""


def _signature(op_type: str, opset: int) -> dict[str, tuple[object, ...]] | None:
    """Describe attributes, inputs and outputs; None where the operator does not exist yet."""
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None
    found: dict[str, tuple[object, ...]] = {}
    for name, item in schema.attributes.items():
        found[name] = ("attribute", item.type, item.required, str(item.default_value))
    for kind, items in (("input", schema.inputs), ("output", schema.outputs)):
        for place, item in enumerate(items):
            found[item.name if kind == "input" else f"output {place}"] = (kind, place, item.option)
    return found


def _differences(op_type: str, opset: int) -> set[str]:
    old, new = _signature(op_type, opset), _signature(op_type, NEWEST_OPSET)
    assert new is not None
    if old is None:
        return {"is not there"}
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def _unchanged(op_type: str) -> Iterator[int]:
    """Give the opsets whose nodes of this operator stay as they are."""
    for opset in range(max(OLDEST_OPSET, _FROM.get(op_type, 0)), NEWEST_OPSET):
        if opset >= 18 or op_type not in _CHANGES_BEFORE_18:
            yield opset


@pytest.mark.parametrize("op_type", TYPED)
def test_a_node_that_stays_as_it_is_means_the_same_in_the_newest_opset(op_type: str) -> None:
    for opset in _unchanged(op_type):
        unexplained = _differences(op_type, opset) - HARMLESS.get(op_type, {}).keys()
        assert not unexplained, f"of opset {opset}"


def test_every_harmless_difference_is_one() -> None:
    for op_type, names in HARMLESS.items():
        found = {name for opset in _unchanged(op_type) for name in _differences(op_type, opset)}
        assert found == names.keys(), op_type


def node_of(op_type: str) -> PlainNode:
    node = PlainNode()
    node.inputs, node.outputs, node.op_type = ["x"], ["y"], op_type
    return node


def test_what_is_new_in_an_opset_is_refused_before_it() -> None:
    for op_type, first in _FROM.items():
        node = node_of(op_type)
        upgrade(node, first, lambda _: "constant")
        with pytest.raises(NotPlainError, match=op_type):
            upgrade(node, first - 1, lambda _: "constant")


@pytest.mark.parametrize("axes", [[1.5], ["a"], "abc", 1])
def test_axes_that_are_no_integers_are_for_onnx_to_judge(axes: object) -> None:
    node = node_of("ReduceMean")
    node.attributes["axes"] = axes  # type: ignore[assignment]
    with pytest.raises(NotPlainError, match="axes"):
        upgrade(node, 17, lambda _: "constant")
