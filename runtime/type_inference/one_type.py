"""Inputs that ONNX gives one type variable, where no rule compares them."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Node, TensorType
from .contradiction import ContradictionError

__all__ = ["require_one_type"]

_Groups = tuple[tuple[int, ...], ...]

_OF_ONE_TYPE: Mapping[str, _Groups] = {
    "Attention": ((1, 4), (2, 5)),
    "BatchNormalization": ((1, 2), (3, 4)),
    "Conv": ((0, 2),),
    "ConvInteger": ((0, 2), (1, 3)),
    "ConvTranspose": ((0, 2),),
    "DeformConv": ((0, 2, 3, 4),),
    "InstanceNormalization": ((0, 1, 2),),
    "LayerNormalization": ((0, 1, 2),),
    "MaxUnpool": ((1, 2),),
    "MelWeightMatrix": ((0, 1, 2), (3, 4)),
    "NegativeLogLikelihoodLoss": ((0, 2),),
    "Pad": ((0, 2),),
    "QLinearMatMul": ((1, 4, 6),),
    "RoiAlign": ((0, 1),),
    "RotaryEmbedding": ((0, 1, 2),),
    "STFT": ((0, 2), (1, 3)),
    "SoftmaxCrossEntropyLoss": ((0, 2),),
}
"""By operator of ONNX's domain: the inputs of each type variable, by number."""


def require_one_type(node: Node) -> None:
    """Raise ContradictionError if inputs that have to be of one element type are of several."""
    for group in _OF_ONE_TYPE.get(node.op_type, ()) if not node.domain else ():
        first: tuple[int, TensorType] | None = None
        for index in group:
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is None or not isinstance(value.type, TensorType):
                continue
            if first is None:
                first = index, value.type
            elif value.type.dtype is not first[1].dtype:
                raise ContradictionError(
                    f"inputs {first[0]} and {index} have to be of one element type, and are "
                    f"{first[1].dtype.label} and {value.type.dtype.label}"
                )
