"""Small models for the tests of the CPU's passes: printed with post-ops, evaluated with numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN, PostOp, parse_post_ops
from aioinfer.backends.reference.finder import KernelFinder
from aioinfer.runtime.graph import Model, Node, Value
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.passes import ConstantFolding, DeadCode, Pass, run_passes
from onnx_text import parse


def parse_typed(text: str) -> Model:
    """Read a graph in ONNX's text format, as passes get it: constants folded, types inferred."""
    model = parse(text)
    infer_types(model)
    run_passes(model, [ConstantFolding()])
    return model


def fuse_by(model: Model, *passes: Pass) -> list[str]:
    """Run passes and print what is left: `y = cpu::Conv(x, w) [relu]  # Conv_0 Relu_0`."""
    run_passes(model, [*passes, DeadCode()])
    return lines(model)


def lines(model: Model) -> list[str]:
    found = []
    for node in model.graph.nodes:
        outputs = ", ".join(value.name for value in node.outputs)
        inputs = ", ".join("_" if value is None else value.name for value in node.inputs)
        steps = " ".join(node.attributes.get("post_ops", ()))
        op = node.op.replace(CPU_DOMAIN, "cpu")
        text = f"{outputs} = {op}({inputs})" + (f" [{steps}]" if steps else "")
        found.append(f"{text}  # {' '.join(node.fused_from)}")
    return found


def run_fused(model: Model, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model with nodes of the CPU's domain; float32 in between, as on the device."""
    known: dict[Value | None, Any] = {None: None}
    known.update({value: inputs[value.name] for value in model.inputs})
    known.update({value: value.constant for value in model.graph.initializers.values()})
    for node in model.graph.nodes:
        arrays = [known[value] for value in node.inputs]
        known.update(zip(node.outputs, _run_node(node, arrays, model.opsets), strict=True))
    return [known[value] for value in model.outputs]


def _run_node(
    node: Node, arrays: Sequence[np.ndarray | None], opsets: Mapping[str, int]
) -> list[np.ndarray]:
    if node.domain != CPU_DOMAIN:
        return list(KernelFinder(opsets)(node)(*arrays))
    result = arrays[0] if node.op_type == "Eltwise" else _run_base(node, arrays[:3], opsets)
    for post_op in parse_post_ops(node.attributes):
        with np.errstate(all="ignore"):
            result = apply(post_op, result, arrays)
    return [result]


def _run_base(
    node: Node, arrays: Sequence[np.ndarray | None], opsets: Mapping[str, int]
) -> np.ndarray:
    """Compute Conv, ConvTranspose, Gemm or MatMul, which may have a bias here."""
    bias = arrays[2] if len(arrays) > 2 else None
    given = 2 if node.op_type == "MatMul" or bias is None else 3
    names = [Value(f"input{index}") for index in range(given)]
    attributes = {key: item for key, item in node.attributes.items() if key != "post_ops"}
    plain = Node(node.op_type, names, (Value("result"),), attributes, name=node.name)
    (result,) = KernelFinder(opsets)(plain)(*arrays[:given])
    return result + bias if node.op_type == "MatMul" and bias is not None else result


def apply(post_op: PostOp, x: np.ndarray, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    """Do one step as ``post_ops.py`` defines it."""
    if post_op.operand is not None:
        other = inputs[post_op.operand]
        assert other is not None
        result = _BINARY[post_op.name](x, other)
        assert result.shape == x.shape
        if post_op.name == "sum":
            assert other.shape == x.shape
        return result
    return np.asarray(_UNARY[post_op.name](x, post_op.alpha, post_op.beta), dtype=x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def _softplus(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.logaddexp(0.0, alpha * x.astype(np.float64)) / alpha


_BINARY: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_UNARY: Mapping[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "tanh": lambda x, a, b: np.tanh(x),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "square": lambda x, a, b: x * x,
    "abs": lambda x, a, b: np.abs(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "linear": lambda x, a, b: a * x + b,
    "softplus": lambda x, a, b: _softplus(x, a),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "exp": lambda x, a, b: np.exp(x),
    "gelu_tanh": lambda x, a, b: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))
    ),
    "gelu_erf": lambda x, a, b: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    "swish": lambda x, a, b: x * _sigmoid(a * x),
    "log": lambda x, a, b: np.log(x),
    "clip": lambda x, a, b: np.clip(x, a, b),
    "pow": lambda x, a, b: a * x**b,
    "round": lambda x, a, b: np.round(x),
    "mish": lambda x, a, b: x * np.tanh(_softplus(x, 1.0)),
    "hardswish": lambda x, a, b: x * np.clip(a * x + b, 0, 1),
}
