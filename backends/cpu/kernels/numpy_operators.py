"""Rare operators that numpy computes between two native calls.

Only what moves or indexes data, has a shape that shapes determine, and is off every hot path:
each costs a return to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node
from ....runtime.graph.sym_int import has_sym_ints
from ....runtime.lowering.written_states import rows_function
from ....runtime.operators import find_unsupported as find_missing
from ....runtime.operators import make_operator
from ..plans.operand_layout import Layout, Operand
from ..plans.plan_builder import PlanBuilder
from .registry import BY_NUMPY, kernel

__all__ = ["lower_by_numpy", "node_function"]

Array = np.ndarray[Any, Any]

_OPERATORS = (
    "BitCast",
    "CumProd",
    "CumSum",
    "Det",
    "Einsum",
    "EyeLike",
    "GatherElements",
    "GatherND",
    "Hardmax",
    "LpNormalization",
    "MatMulInteger",
    "ReverseSequence",
    "ScatterElements",
    "TfIdfVectorizer",
    "Trilu",
)
_SIZED_OPERATORS = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "STFT": (1, 3),
}
"""Operators whose results have lengths that inputs of these indices tell."""

_ML_OPERATORS = (
    "ArrayFeatureExtractor",
    "Binarizer",
    "FeatureVectorizer",
    "Imputer",
    "LabelEncoder",
    "LinearClassifier",
    "LinearRegressor",
    "Normalizer",
    "OneHotEncoder",
    "Scaler",
)
_ML_TYPES = frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64})


def refuses_operator(node: Node) -> str | None:
    """Return why no evaluation on numpy arrays computes a node, or None."""
    return find_missing(node, {})  # models are of the newest opset


@kernel("ScatterND", "TensorScatter", dtypes=None, refuses=refuses_operator)
def lower_scatter_nd(node: Node, builder: PlanBuilder) -> None:
    """Lower writes of rows; into a state that is there already, they are all that is done."""
    found = builder.written(node.outputs[0])
    if found is None:
        lower_by_numpy(node, builder)
        return
    made, places = found
    reads = [builder.plain(value) for value in node.inputs[1:] if value is not None]
    builder.numpy(
        rows_function(node, places), [*reads, made], knows_lengths=False, node=node, places=places
    )


@kernel(BY_NUMPY[1], domain=BY_NUMPY[0], dtypes=None, refuses=refuses_operator)
@kernel(*_ML_OPERATORS, domain="ai.onnx.ml", dtypes=_ML_TYPES, refuses=refuses_operator)
@kernel("OneHot", dtypes=None, refuses=refuses_operator, constant_inputs=(1,))
@kernel(*_OPERATORS, dtypes=None, refuses=refuses_operator)
def lower_by_numpy(node: Node, builder: PlanBuilder) -> None:
    """Lower a node as a call of its evaluation on numpy arrays."""
    function = node_function(node, builder.model.opsets)
    given = [None if value is None else builder.plain(value) for value in node.inputs]
    made: list[Operand] = []
    for value in node.outputs:
        layout = Layout.plain(builder.shape(value), builder.dtype(value))
        made.append(builder.result(value, layout))
    reads = [operand for operand in given if operand is not None]
    attributes = (item if isinstance(item, list) else [item] for item in node.attributes.values())
    knows_lengths = any(map(has_sym_ints, attributes))
    builder.numpy(function, [*reads, *made], knows_lengths=knows_lengths, node=node)


for _op_type, _indices in _SIZED_OPERATORS.items():
    kernel(_op_type, dtypes=None, refuses=refuses_operator, constant_inputs=_indices)(
        lower_by_numpy
    )


def node_function(node: Node, opsets: Mapping[str, int]) -> Callable[..., None]:
    """Return what computes a node, called with arrays of what it is given and of its outputs.

    Raises OperatorError where nothing here can.
    """
    operator = make_operator(node, opsets)
    is_given = [value is not None for value in node.inputs]
    read_count = sum(is_given)

    def function(*arrays: np.ndarray[Any, Any]) -> None:
        rest = iter(arrays[:read_count])
        results = operator(*[next(rest) if here else None for here in is_given])
        targets = arrays[read_count:]
        for target, result in zip(targets, results[: len(targets)], strict=True):
            if np.shape(result) != target.shape:
                raise ValueError(
                    f"its result is {list(np.shape(result))}, and was to be {list(target.shape)}"
                )
            target[...] = result

    return function
