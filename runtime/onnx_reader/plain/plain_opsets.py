"""Bringing plain nodes to the newest opset by a table, without onnx's converter.

Between opset 13 and the newest, most operators have only learnt new types, or attributes whose
default is what they did before: their nodes stay as they are. A few need a small change, and have
an entry in ``_CHANGES_BEFORE_18``. What came or changed its meaning later than 13 is in ``_FROM``,
by the opset from which on a node means what it means in the newest: an older one is for onnx's
converter, or is an error that onnx reports.

Source: the change log of ONNX's operators. The tests hold both tables against onnx's schemas of
every opset from 13 on, where each difference that is in neither table is listed with the reason why
it is harmless; and they compare models read with and without onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...graph import Attribute
from .plain_fields import NotPlainError
from .plain_proto import PlainNode

__all__ = ["NEWEST_IR_VERSION", "NEWEST_OPSET", "OLDEST_OPSET", "needs_upgrade", "upgrade"]

OLDEST_OPSET, NEWEST_OPSET = 13, 26
NEWEST_IR_VERSION = 13
"""The oldest version of the file format that may hold NEWEST_OPSET."""

AddConstant = Callable[[np.ndarray], str]
"""Takes a new constant into the graph and gives its name."""

_FROM: Mapping[str, int] = {
    "AffineGrid": 20,
    "Attention": 24,
    "BatchNormalization": 14,
    "Bernoulli": 15,
    "BitCast": 26,
    "BitwiseAnd": 18,
    "BitwiseNot": 18,
    "BitwiseOr": 18,
    "BitwiseXor": 18,
    "BlackmanWindow": 17,
    "CastLike": 15,
    "CenterCropPad": 18,
    "Col2Im": 18,
    "CumProd": 26,
    "DFT": 20,
    "DeformConv": 19,
    "Gelu": 20,
    "GridSample": 20,
    "GroupNormalization": 21,
    "HammingWindow": 17,
    "HannWindow": 17,
    "HardSwish": 14,
    "LayerNormalization": 17,
    "MelWeightMatrix": 17,
    "Mish": 18,
    "RMSNormalization": 23,
    "RegexFullMatch": 20,
    "RoiAlign": 16,
    "RotaryEmbedding": 23,
    "STFT": 17,
    "StringConcat": 20,
    "Swish": 24,
    "TensorScatter": 24,
    "Trilu": 14,
}

_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)


def needs_upgrade(op_type: str, opset: int) -> bool:
    """True unless nodes of an operator stay as they are."""
    return op_type in _changes(opset) or opset < _FROM.get(op_type, OLDEST_OPSET)


def upgrade(node: PlainNode, opset: int, add_constant: AddConstant) -> None:
    """Change a node of this opset into one of the newest.

    ``opset`` is at least OLDEST_OPSET. Raises NotPlainError for what only onnx's converter can do.
    """
    change = _changes(opset).get(node.op_type)
    if change is not None:
        change(node, add_constant)
    elif opset < _FROM.get(node.op_type, OLDEST_OPSET):
        raise NotPlainError(f"{node.op_type} of opset {opset} is for the converter")


def _changes(opset: int) -> Mapping[str, Callable[[PlainNode, AddConstant], None]]:
    return _CHANGES_BEFORE_18 if opset < 18 else {}


def _axes_to_input(node: PlainNode, add_constant: AddConstant) -> None:
    axes = node.attributes.pop("axes", None)
    if len(node.inputs) != 1:
        raise NotPlainError(f"{node.op_type} has more than one input")
    if axes is not None:
        node.inputs.append(add_constant(_integers(axes)))


def _count_outputs(node: PlainNode, _add_constant: AddConstant) -> None:
    if len(node.inputs) < 2 or not node.inputs[1]:
        node.attributes["num_outputs"] = len(node.outputs)


def _integers(numbers: Attribute) -> np.ndarray:
    if not isinstance(numbers, list) or not all(isinstance(item, int) for item in numbers):
        raise NotPlainError("axes are no list of integers")
    array = np.array(numbers, np.int64)
    array.flags.writeable = False
    return array


_CHANGES_BEFORE_18: Mapping[str, Callable[[PlainNode, AddConstant], None]] = {
    **dict.fromkeys(_REDUCTIONS, _axes_to_input),
    "Split": _count_outputs,
}
