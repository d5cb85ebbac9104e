"""Models of one operator of onnxruntime's own, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core

__all__ = ["Arrays", "by_onnxruntime", "contrib_model", "on_device"]

Arrays = Mapping[str, np.ndarray]
_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.bool_): TensorProto.BOOL,
    np.dtype(np.int32): TensorProto.INT32,
}


def contrib_model(
    op_type: str,
    operands: Sequence[str],
    given: Arrays,
    constants: Arrays,
    result: Any,
    shape: Sequence[int | str] | None = None,
    *,
    domain: str = "com.microsoft",
    **attributes: Any,
) -> bytes:
    """Write a model of one node, with an Identity behind it; "" is an operand that is left out."""
    nodes = [
        helper.make_node(op_type, operands, ["made"], name="node", domain=domain, **attributes),
        helper.make_node("Identity", ["made"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, _TYPES[array.dtype], array.shape)
        for name, array in given.items()
    ]
    output = helper.make_tensor_value_info("y", _TYPES[np.dtype(result)], shape)
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "contrib", inputs, [output], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def by_onnxruntime(model: bytes, given: Arrays) -> np.ndarray:
    """Compute a model's first output, with no sum of two products of 8 bits cut off at 16.

    Where the processor has no VNNI, onnxruntime does by default.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return np.asarray(onnxruntime.InferenceSession(model, options).run(None, dict(given))[0])


def on_device(core: Core, model: bytes, device: str, given: Arrays) -> np.ndarray:
    with core.load_network(model, device) as network:
        return np.asarray(network.create_infer_request().infer_sync(dict(given))["y"])
