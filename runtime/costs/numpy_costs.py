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
        length = kind.shape[0] if isinstance(kind, TensorType) and kind.shape else None
        return length if isinstance(length, int) else _SOME_TURNS
    if node.op_type == "Loop":
        wanted = node.integers_at(0)
        return wanted[0] if wanted else _SOME_TURNS
    return 1
