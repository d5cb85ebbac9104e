"""One operator by our function, by onnx.reference and by onnxruntime."""

from collections.abc import Sequence
from typing import Any

import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator

__all__ = ["by_onnx", "by_onnxruntime", "by_us"]

OPSET = 21


def by_us(op_type: str, *inputs: Any, opset: int = OPSET, **attributes: Any) -> Any:
    names = [None if x is None else Value(f"x{index}") for index, x in enumerate(inputs)]
    node = Node(op_type, names, [Value("y")], attributes, name="n")
    return make_operator(node, {"": opset})(*inputs)[0]


def by_onnx(op_type: str, *inputs: Any, opset: int = OPSET, **attributes: Any) -> Any:
    model = _model(op_type, inputs, opset, attributes)
    return ReferenceEvaluator(model).run(None, _feed(inputs))[0]


def by_onnxruntime(op_type: str, *inputs: Any, opset: int = OPSET, **attributes: Any) -> Any:
    model = _model(op_type, inputs, opset, attributes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, _feed(inputs))[0]


def _feed(inputs: Sequence[Any]) -> dict[str, Any]:
    return {f"x{index}": x for index, x in enumerate(inputs) if x is not None}


def _model(op_type: str, inputs: Sequence[Any], opset: int, attributes: dict[str, Any]) -> Any:
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in _feed(inputs).items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    made = helper.make_tensor_value_info("y", kind, None)
    if op_type in ("DequantizeLinear", "QuantizeLinear"):
        made = helper.make_empty_tensor_value_info("y")
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return helper.make_model(
        helper.make_graph([node], "g", given, [made]),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )
