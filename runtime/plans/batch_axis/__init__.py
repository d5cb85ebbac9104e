"""Which dimension of a network is the batch, and whether its rows keep apart: a pure analysis."""

from .analysis import BatchAxis, find_batch_axis, forget_types

__all__ = ["BatchAxis", "find_batch_axis", "forget_types"]
