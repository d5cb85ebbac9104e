"""Steps on each element: convert_element_type, mean and scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import TensorError
from ..graph import DType, Value
from .element_types import short_name
from .state import State, constant

__all__ = ["convert_element_type", "mean", "rounded", "scale"]


def convert_element_type(state: State, wanted: DType) -> State:
    """Convert every element; what is converted to an integer loses its fraction."""
    if state.dtype is wanted:
        return state
    return state.of(state.node("Cast", state.value, to=wanted.value))


def rounded(state: State, value: Value, wanted: DType) -> Value:
    """Convert f32 to an integer type: to the nearest one, halves to even, kept in its bounds."""
    bounds = np.iinfo(wanted.numpy)
    first, last = (constant(np.array(bound, np.float32)) for bound in (bounds.min, bounds.max))
    whole = state.node("Clip", state.node("Round", value), first, last)
    return state.node("Cast", whole, to=wanted.value)


def mean(state: State, numbers: float | Sequence[float]) -> State:
    """Subtract a number, or one for each channel."""
    operand = _per_channel(state, numbers, "mean")
    return state.of(state.node("Sub", state.value, operand))


def scale(state: State, numbers: float | Sequence[float]) -> State:
    """Divide by a number, or by one for each channel."""
    operand = _per_channel(state, numbers, "scale")
    return state.of(state.node("Div", state.value, operand))


def _per_channel(state: State, numbers: float | Sequence[float], step: str) -> Value:
    """Lay numbers along the channels; raises TensorError where they do not fit."""
    if not state.dtype.is_floating:
        raise TensorError(
            f"{step} is for floating point, and the tensor is {short_name(state.dtype)}; put "
            f"convert_element_type('f32') before it"
        )
    if not isinstance(numbers, Sequence):
        return state.floats(numbers)
    axis = state.axis("C")
    channels = state.shape[axis]
    if isinstance(channels, int) and channels != len(numbers):
        raise TensorError(
            f"{step} has {len(numbers)} numbers for {channels} channels (axis {axis}, layout "
            f"{state.layout}); give one number for each channel, or one for all"
        )
    shape = (len(numbers),) + (1,) * (state.rank - 1 - axis)
    return state.floats(np.reshape(numbers, shape).tolist())
