"""Types of operators that are made of ONNX's: those of what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from ...decompositions import CompositionError, compose
from ...decompositions.registry import decompositions
from ...graph import Node, TensorType, Value
from ..content.shape_content import ShapeContent
from ..made_types import types_of_made
from ..rules import type_rule


def like_composition(node: Node, _contents: ShapeContent) -> Sequence[TensorType | None] | None:
    """Infer along the composition, with values that stand for the node's; None: no composition."""
    stand_ins = {
        value: Value(value.name, value.type, value.constant)
        for value in node.inputs
        if value is not None
    }
    inputs = [None if value is None else stand_ins[value] for value in node.inputs]
    try:
        _, outputs = compose(node, inputs, types_of_made(ShapeContent()))
    except CompositionError:
        return None
    types = [None if value is None else value.type for value in outputs]
    return [known if isinstance(known, TensorType) else None for known in types]


_OWN_RULES = {
    ("ai.onnx.ml", op_type)
    for op_type in (
        "ArrayFeatureExtractor",
        "LinearClassifier",
        "LinearRegressor",
        "Normalizer",
        "SVMClassifier",
        "Scaler",
        "TreeEnsembleClassifier",
    )
}
"""Operators whose types are known where their composition is not: ``ml_types.py`` and
``tree_types.py`` have their rules."""

for _domain, _op_type in sorted(decompositions().keys() - _OWN_RULES):
    type_rule(_op_type, domain=_domain)(like_composition)
