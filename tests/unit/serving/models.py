"""Models that the tests serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits" / "digits.onnx"

OF_DATATYPE = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}


def _saved(path: Path, graph: onnx.GraphProto) -> Path:
    opsets = [helper.make_opsetid("", 21)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def echo(path: Path, types: Sequence[int] = tuple(OF_DATATYPE.values())) -> Path:
    """One input ``in_NUMBER`` and one output ``out_NUMBER`` of each type, which are the same."""
    names = [str(number) for number in types]
    graph = helper.make_graph(
        [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name in names],
        "echo",
        [helper.make_tensor_value_info(f"in_{n}", int(n), ["rows", "columns"]) for n in names],
        [helper.make_tensor_value_info(f"out_{n}", int(n), ["rows", "columns"]) for n in names],
    )
    return _saved(path, graph)


def scaled(path: Path, factor: float) -> Path:
    """``y`` is ``x`` times the factor; rows of any length."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [numpy_helper.from_array(np.float32(factor), "factor")],
    )
    return _saved(path, graph)


def running_sum(path: Path) -> Path:
    """``y`` is the sum of this ``x`` and those before it, of a state; rows of any length."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["past", "x"], ["present"]),
            helper.make_node("Identity", ["present"], ["y"]),
        ],
        "running_sum",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, ["rows", 3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3]),
            helper.make_tensor_value_info("present", TensorProto.FLOAT, ["rows", 3]),
        ],
    )
    return _saved(path, graph)


def counter(path: Path) -> Path:
    """``next`` is ``token`` and 1, ``total`` the sum of the tokens, of a state."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["token", "one"], ["next"]),
            helper.make_node("Add", ["past", "token"], ["present"]),
            helper.make_node("Identity", ["present"], ["total"]),
        ],
        "counter",
        [
            helper.make_tensor_value_info("token", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("past", TensorProto.INT64, [1, 1]),
        ],
        [
            helper.make_tensor_value_info("next", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("total", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("present", TensorProto.INT64, [1, 1]),
        ],
        [numpy_helper.from_array(np.int64([[1]]), "one")],
    )
    return _saved(path, graph)


STATE = {"STATE": {"past": "present"}}
