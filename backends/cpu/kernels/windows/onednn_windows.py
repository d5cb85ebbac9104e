"""Windows as oneDNN slides them: which it takes, and its arrays of lengths. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from .....runtime.graph import Node, Value
from .....runtime.passes.rewriting.matching import rank_of, static_shape
from ...onednn.bindings import Numbers, OneDnnError
from ...onednn.numbers import MAX_LENGTH

__all__ = ["MAX_SPATIAL_RANK", "dims_array", "find_bad_window", "spatial_rank_of"]

MAX_SPATIAL_RANK = 3
"""oneDNN convolves and pools over one to three axes."""

_MOST = 1 << 24
"""oneDNN counts bytes in 32 bits: as floats of sixteen channels."""


def find_bad_window(node: Node, value: Value | None) -> str | None:
    """Return why a window cannot run whatever the shapes are, or None; ``value`` has its rank."""
    rank = spatial_rank_of(node, value)
    if rank is None:
        return f"CPU needs to know the rank of {node.op}'s input"
    if not 1 <= rank <= MAX_SPATIAL_RANK:
        return f"CPU has {node.op} over 1 to {MAX_SPATIAL_RANK} spatial axes, not over {rank}"
    for name, count in (("strides", 1), ("dilations", 1), ("kernel_shape", 1), ("pads", 2)):
        given = node.attributes.get(name)
        if given and len(given) != count * rank:
            return f"CPU has {node.op} with {count * rank} {name}, not {list(given)}"
        if given and name != "pads" and min(given) < 1:
            return f"CPU has {node.op} with {name} from 1 on, not {list(given)}"
    if min(node.attributes.get("pads") or [0]) < 0:
        return f"CPU has {node.op} without negative pads"
    if _longest(node, value) > _MOST:
        return f"CPU has {node.op} with windows, strides and pads of up to {_MOST} elements"
    return None


def _longest(node: Node, value: Value | None) -> int:
    """Return the largest of what a file can make long without holding as many elements."""
    kernel = node.attributes.get("kernel_shape") or (static_shape(value) or ())[2:]
    dilations = node.attributes.get("dilations") or ()
    spans = [size * step for size, step in zip_longest(kernel, dilations, fillvalue=1)]
    given = (node.attributes.get(name) or () for name in ("strides", "pads"))
    return max(chain(spans, *given), default=0)


def spatial_rank_of(node: Node, value: Value | None) -> int | None:
    """Return over how many axes a node slides, from ``kernel_shape`` or a known rank."""
    kernel = node.attributes.get("kernel_shape")
    if kernel:
        return len(kernel)
    rank = rank_of(value)
    return None if rank is None else rank - 2


def dims_array(numbers: Sequence[int]) -> object:
    """Make a dnnl_dims_t; raises OneDnnError for what oneDNN's int cannot hold."""
    if any(abs(number) > MAX_LENGTH for number in numbers):
        raise OneDnnError(f"window of {list(numbers)}", 2)
    return Numbers(numbers)
