"""Types of recurrent networks: all hidden states, and the last ones.

Letters: T steps, N sequences, D directions, H hidden units; W is (D, gates * H, inputs) and R is
(D, gates * H, H).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Dim, Node, TensorType
from .dims import agree, is_contradiction
from .operands import Operand, integer, operand
from .rules import type_rule
from .shape_content import ShapeContent

_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
_DIRECTIONS: Mapping[str, int] = {"forward": 1, "reverse": 1, "bidirectional": 2}


@type_rule("GRU", "LSTM", "RNN")
def recurrent(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Y (T, D, N, H) and Y_h (D, N, H), and LSTM's Y_c like Y_h; with layout 1, N comes first."""
    x, w, r = operand(node, 0), operand(node, 1), operand(node, 2)
    layout = integer(node, "layout", 0)
    directions = _DIRECTIONS.get(str(node.attributes.get("direction", "forward")))
    if x is None or w is None or r is None or directions is None or layout not in (0, 1):
        return None
    if not len(x.shape) == len(w.shape) == len(r.shape) == 3:
        return None
    hidden = _hidden_size(node, w, r)
    if isinstance(hidden, int) and hidden < 1:
        return None
    if not agree(directions, w.shape[0]) or not agree(directions, r.shape[0]):
        return None
    if not agree(x.shape[2], w.shape[2]):
        return None
    batch = x.shape[1 - layout]
    if not _is_or_left_out(operand(node, 4), (batch,)):
        return None
    if layout == 0:
        every: tuple[Dim, ...] = (x.shape[0], directions, batch, hidden)
        last: tuple[Dim, ...] = (directions, batch, hidden)
    else:
        every = (batch, x.shape[1], directions, hidden)
        last = (batch, directions, hidden)
    for index in (5, 6) if node.op_type == "LSTM" else (5,):
        if not _is_or_left_out(operand(node, index), last):
            return None
    lasts = [TensorType(x.dtype, last)] * (2 if node.op_type == "LSTM" else 1)
    return [TensorType(x.dtype, every), *lasts]


def _hidden_size(node: Node, w: Operand, r: Operand) -> Dim:
    """Give the hidden units; 0 where attribute and weights contradict each other."""
    told = integer(node, "hidden_size")
    hidden = r.shape[2] if told is None else told
    if not agree(hidden, r.shape[2]):
        return 0
    rows = hidden * _GATES[node.op_type] if isinstance(hidden, int) else None
    return hidden if agree(rows, w.shape[1]) and agree(rows, r.shape[1]) else 0


def _is_or_left_out(given: Operand | None, shape: tuple[Dim, ...]) -> bool:
    """True if an optional input is not given, or may have this shape."""
    return given is None or not is_contradiction(given.shape, shape)
