"""Features that are picked by their places, as a Gather."""

from __future__ import annotations

from ..graph import Value
from .composition import Composition, CompositionError
from .registry import decomposition

_PLACES = {("ArgMax", 0), ("ArgMin", 0), ("NonZero", 0), ("TopK", 1)}
"""Operators and outputs whose numbers are places, which are not below 0."""

_KEEPS_NUMBERS = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)


@decomposition("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(made: Composition) -> list[Value]:
    """Elements along the last axis; of a vector as a row.

    Places below 0 are refused, where Gather counts them from the end: they must be known not to be.
    """
    x, places = made.given(0), made.given(1)
    rank = made.rank(x)
    if not rank or not _are_places(places):
        raise CompositionError("its indices may be below 0")
    if rank == 1:
        return [made.add("Gather", x, made.add("Reshape", places, made.integers(1, -1)), axis=0)]
    row = places if made.rank(places) == 1 else made.add("Reshape", places, made.integers(-1))
    return [made.add("Gather", x, row, axis=rank - 1)]


def _are_places(value: Value) -> bool:
    if value.constant is not None:
        return bool((value.constant >= 0).all())
    maker = value.producer
    while maker is not None and not maker.domain:
        if (maker.op_type, maker.outputs.index(value)) in _PLACES:
            return True
        source = maker.input_at(0)
        if maker.op_type not in _KEEPS_NUMBERS or source is None:
            return False
        value, maker = source, source.producer
    return False
