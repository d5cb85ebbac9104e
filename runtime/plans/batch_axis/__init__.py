"""Which dimension of a network is the batch, and whether its rows keep apart: a pure analysis."""

from .analysis import BatchAxis, find_batch_axis, forget_types
from .length_axes import find_length_axes, input_axes

__all__ = ["BatchAxis", "find_batch_axis", "find_length_axes", "forget_types", "input_axes"]
