"""How long numpy takes for a node between two native calls, beside what compiled code takes."""

from __future__ import annotations

from ..graph import Node, TensorType
from .node_costs import NodeCost

__all__ = ["NUMPY", "numpy_s"]

NUMPY = "numpy"
"""What a device calls this implementation when it answers a query; see ``Support``."""

_LAUNCH_S = 20e-6
"""For the way back to Python, and the function's own calls of numpy."""

_FLOP_PER_S, _BYTES_PER_S = 64e9, 8e9
"""Of compiled code on a processor, which the factors are in."""

_SOME_TIMES = 2.0
"""What numpy takes for most: a pass over memory more, and one thread."""

_SOME_TURNS = 16
"""Of a body of which nothing tells how often it runs."""

_MOST_TURNS = 100_000
"""More than that are no count, but a bound."""

_TIMES = {
    "AffineGrid": 9.0,
    "BitCast": 1.0,
    "CenterCropPad": 1.0,
    "CumSum": 8.0,
    "Einsum": 1.0,
    "EyeLike": 1.0,
    "GatherElements": 5.0,
    "GridSample": 6.0,
    "Hardmax": 1.0,
    "MaxRoiPool": 4.0,
    "OneHot": 1.0,
    "STFT": 0.5,
    "ScatterND": 1.2,
    "TfIdfVectorizer": 8.0,
    "Trilu": 3.5,
}
"""How many times what onnxruntime takes for 256 x 256 places and more, as measured."""


def numpy_s(node: Node, cost: NodeCost) -> float:
    """Return what a node takes by numpy; nothing for one that costs nothing."""
    if not cost.flop and not cost.bytes:
        return 0.0
    compiled_s = max(cost.flop / _FLOP_PER_S, cost.bytes / _BYTES_PER_S)
    launch_s = _LAUNCH_S * max(1, sum(map(len, node.bodies())))
    turns = _turns(node)
    return turns * (launch_s + _TIMES.get(node.op_type, _SOME_TIMES) * compiled_s)


def _turns(node: Node) -> int:
    """Suppose how often the body of a node is run; 1 for what has none, or runs it once."""
    if node.op_type == "Scan":
        count = node.attributes.get("num_scan_inputs")
        scanned = node.inputs[-count] if isinstance(count, int) and count > 0 else None
        kind = None if scanned is None else scanned.type
        axes = node.attributes.get("scan_input_axes")
        axis = axes[0] if isinstance(axes, list | tuple) and axes else 0
        shape = kind.shape if isinstance(kind, TensorType) and kind.shape else ()
        known = isinstance(axis, int) and -len(shape) <= axis < len(shape)
        length = shape[axis] if known else None
        return length if isinstance(length, int) else _SOME_TURNS
    if node.op_type == "Loop":  # whose count is the largest there is where a condition ends it
        wanted = node.integers_at(0)
        return wanted[0] if wanted and 0 <= wanted[0] <= _MOST_TURNS else _SOME_TURNS
    return 1
