"""Valid models to begin with: a small one for every operator, from onnx's own node cases.

Drawn from a fixed seed, so that a case means the same every time with one version of onnx.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

__all__ = ["Base", "base_of", "load_bases"]

_MOST_ELEMENTS, _MOST_NODES = 2000, 12
_UNFIT = {"ImageDecoder"}
"""Operators whose cases need more than onnx and numpy."""


@dataclass(frozen=True)
class Base:
    """A valid model with one set of inputs and what they give."""

    name: str
    op_type: str
    model: ModelProto
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    opsets: tuple[int, int] | None
    """The first and last operator set in which it means the same; None: leave its own."""

    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    """The declared type of each input and output."""
    states: Mapping[str, str] = field(default_factory=dict)
    """What the property STATE is set to: such inputs are not given."""


def load_bases() -> list[Base]:
    """Make the base cases of all operators, in a fixed order; takes seconds."""
    from onnx.backend.test.case.node import collect_testcases

    state = np.random.get_state()
    np.random.seed(12)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = collect_testcases(None)
    finally:
        np.random.set_state(state)
    bases = [_base(case) for case in cases]
    return [base for base in bases if base is not None]


def base_of(
    name: str,
    model: ModelProto,
    given: Mapping[str, Any],
    states: Mapping[str, str] | None = None,
) -> Base:
    """Make a base of a valid model; its initializers are given like inputs.

    onnxruntime says what it gives.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    made = session.run(None, dict(given))
    graph = model.graph
    parameters = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    inputs = {**given, **parameters}
    types = {info.name: info.type for info in (*graph.input, *graph.output)}
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.initializer[:]
    for parameter, array in parameters.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        bare.graph.input.append(helper.make_tensor_value_info(parameter, kind, array.shape))
    outputs = {info.name: value for info, value in zip(graph.output, made, strict=True)}
    op_type = graph.node[0].op_type if graph.node[0].domain else name
    return Base(name, op_type, bare, inputs, outputs, None, types, states or {})


def _base(case: Any) -> Base | None:
    graph = case.model.graph
    given, wanted = case.data_sets[0]
    inputs = {info.name: _value(value) for info, value in zip(graph.input, given, strict=False)}
    outputs = {info.name: _value(value) for info, value in zip(graph.output, wanted, strict=True)}
    elements = sum(_size(value) for value in (*inputs.values(), *outputs.values()))
    op_types = {node.op_type for node in graph.node}
    if elements > _MOST_ELEMENTS or len(graph.node) > _MOST_NODES or op_types & _UNFIT:
        return None
    return Base(
        case.name,
        graph.node[0].op_type if len(graph.node) == 1 else case.name,
        case.model,
        inputs,
        outputs,
        _same_opsets(case.model),
        {info.name: info.type for info in (*graph.input, *graph.output)},
    )


def _value(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def _size(value: Any) -> int:
    return sum(map(_size, value)) if isinstance(value, list) else int(np.size(value))


def _same_opsets(model: ModelProto) -> tuple[int, int] | None:
    if len(model.opset_import) != 1 or model.opset_import[0].domain:
        return None
    own, newest = model.opset_import[0].version, onnx.defs.onnx_opset_version()
    schemas = [onnx.defs.get_schema(node.op_type, own) for node in model.graph.node]
    since = max([schema.since_version for schema in schemas], default=1)
    last = own
    while last < newest and all(
        onnx.defs.get_schema(schema.name, last + 1).since_version == schema.since_version
        for schema in schemas
    ):
        last += 1
    return max(since, min(13, last)), last
