"""Which variants of normalisations no kernel computes, whatever the shapes are. Pure.

Each function gives a reason why the node cannot run, or None.
"""

from __future__ import annotations

from collections.abc import Collection

from ..graph import DType, Node
from ..passes.rewriting.matching import dtype_of, rank_of

__all__ = [
    "find_low_rank",
    "find_other_batch_normalization",
    "find_other_parameters",
    "find_other_precision",
]

_FLOAT32 = DType.FLOAT32.value


def find_low_rank(node: Node) -> str | None:
    """Ask for an input of known rank that has channels."""
    rank = rank_of(node.inputs[0])
    if rank is None:
        return f"the rank of {node.op}'s input is not known"
    return None if rank >= 2 else f"{node.op} runs from rank 2 on, not for rank {rank}"


def find_other_batch_normalization(node: Node) -> str | None:
    """Ask for BatchNormalization of channels by given statistics."""
    if node.attributes.get("training_mode", 0):
        return f"{node.op} runs for inference only"
    if any(value.uses or value.is_graph_output for value in node.outputs[1:]):
        return f"{node.op} runs with one output"
    if not node.attributes.get("spatial", 1):
        return f"{node.op} runs over channels only"
    return None


def find_other_parameters(node: Node, dtypes: Collection[DType]) -> str | None:
    """Ask for scales, shifts and statistics of these element types, where they are known."""
    for value in node.inputs[1:]:
        dtype = dtype_of(value)
        if dtype is not None and dtype not in dtypes:
            known = ", ".join(sorted(item.label for item in dtypes))
            return f"{node.op} runs with parameters of {known}, not of {dtype.label}"
    return None


def find_other_precision(node: Node) -> str | None:
    """Ask for statistics that are computed in float32."""
    if int(node.attributes.get("stash_type", _FLOAT32)) != _FLOAT32:
        return f"{node.op} is computed in float32 only (stash_type 1)"
    return None
