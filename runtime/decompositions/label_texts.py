"""Classifiers of ai.onnx.ml whose labels are texts: those of numbers, and the texts by number."""

from __future__ import annotations

import numpy as np

from ..graph import Value
from .composition import Composition, CompositionError
from .registry import decomposition

_ML = "ai.onnx.ml"
_NUMBERS = {"SVMClassifier": "classlabels_ints", "TreeEnsembleClassifier": "classlabels_int64s"}


@decomposition("SVMClassifier", "TreeEnsembleClassifier", domain=_ML)
def classifier_of_texts(made: Composition) -> list[Value]:
    """Let the label be a number, by which devices without texts can compute it."""
    node, numbers = made.node, _NUMBERS[made.node.op_type]
    given = dict(node.attributes)
    texts = given.pop("classlabels_strings", None)
    if not texts or given.get(numbers):
        raise CompositionError("its labels are no texts")
    assert isinstance(texts, list | tuple)
    given[numbers] = list(range(len(texts)))
    count = len(node.outputs)
    place, *scores = made.add_many(node.op_type, count, made.given(0), domain=_ML, **given)
    labels = made.constant(np.array(list(texts), object), "labels")
    return [made.add("Gather", labels, place), *scores]
