"""Inputs that a schema of ONNX gives one type variable are held to one element type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, defs
from onnx.backend.test.loader import load_model_tests

from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.type_inference import ShapeContent, find_rule, infer_graph_types
from unit.runtime.type_inference.typed_nodes import Given, make_node

_OTHERS = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT16)


def _tied(model: ModelProto) -> Iterator[tuple[str, str]]:
    """Give inputs of a model of one node, each after the first one of its type variable."""
    (node,) = model.graph.node
    schema = defs.get_schema(node.op_type, model.opset_import[0].version)
    types = {info.name: info.type for info in model.graph.input}
    names, first = list(node.input), dict[str, str]()
    for index, name in enumerate(names):
        form = schema.inputs[min(index, len(schema.inputs) - 1)]
        is_tensor = name in types and types[name].HasField("tensor_type")
        if not is_tensor or "(" in form.type_str or not form.is_homogeneous:
            continue
        if form.type_str in first and names.count(name) == 1:
            yield first[form.type_str], name
        first.setdefault(form.type_str, name)


def test_no_operator_takes_two_element_types_for_one_type_variable() -> None:
    seen, taken = set(), []
    for case in load_model_tests(kind="node"):
        data = Path(case.model_dir, "model.onnx").read_bytes()
        model = onnx.load_from_string(data)
        if len(model.graph.node) != 1 or model.opset_import[0].domain:
            continue
        op_type = model.graph.node[0].op_type
        for index, (first, name) in enumerate(_tied(model)):
            infos = {info.name: info.type.tensor_type for info in model.graph.input}
            known = infos[name].elem_type
            other = next(item for item in _OTHERS if item not in (known, infos[first].elem_type))
            if (op_type, index) in seen:
                continue
            seen.add((op_type, index))
            infos[name].elem_type = other
            try:
                read = read_model(model.SerializeToString())
                if infer_graph_types(read.graph):
                    taken.append((op_type, name))
            except ModelError:
                pass
            infos[name].elem_type = known
    assert taken == []
    assert len(seen) > 80


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("Conv", ["float32[1,2,8]", "float32[3,2,3]", "int64[3]"]),
        ("ConvTranspose", ["float32[1,2,8]", "float32[2,3,3]", "float16[3]"]),
        ("LayerNormalization", ["float32[2,4]", "float32[4]", "int64[]"]),
        ("LayerNormalization", ["float32[2,4]", "float64[4]"]),
    ],
)
def test_the_inputs_and_their_element_types_are_named(op_type: str, inputs: list[Given]) -> None:
    node = make_node(op_type, inputs, {})
    rule = find_rule(node)
    assert rule is not None
    with pytest.raises(ModelError, match="have to be of one element type, and are float32 and"):
        rule(node, ShapeContent())
