"""Types of recurrent networks: all hidden states, and the last ones.

Letters: T steps, N sequences, D directions, H hidden units; W is (D, gates * H, inputs) and R is
(D, gates * H, H).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Dim, DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..operands import (
    Operand,
    integer,
    operand,
    require_length,
    require_rank,
    require_same_type,
    require_shape,
    require_type,
)
from ..rules import type_rule

_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
_DIRECTIONS: Mapping[str, int] = {"forward": 1, "reverse": 1, "bidirectional": 2}


@type_rule("GRU", "LSTM", "RNN")
def recurrent(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Y (T, D, N, H) and Y_h (D, N, H), and LSTM's Y_c like Y_h; with layout 1, N comes first."""
    x, w, r = operand(node, 0), operand(node, 1), operand(node, 2)
    layout, direction = integer(node, "layout", 0), node.attributes.get("direction", "forward")
    directions = _DIRECTIONS.get(str(direction))
    if x is None or w is None or r is None or layout is None:
        return None
    if directions is None or layout not in (0, 1):
        raise ContradictionError(f"it has no direction {direction!r} with layout {layout}")
    for what, given in (("the input", x), ("W", w), ("R", r)):
        require_rank(what, given, 3)
        require_same_type(f"the input and {what}", x, given)
    hidden = _hidden_size(node, r)
    rows = hidden * _GATES[node.op_type] if isinstance(hidden, int) else None
    batch = x.shape[1 - layout]
    require_shape("W", w, directions, rows, x.shape[2])
    require_shape("R", r, directions, rows, hidden)
    if layout == 0:
        every: tuple[Dim, ...] = (x.shape[0], directions, batch, hidden)
        last: tuple[Dim, ...] = (directions, batch, hidden)
    else:
        every = (batch, x.shape[1], directions, hidden)
        last = (batch, directions, hidden)
    _check_optional(node, x, directions, rows, batch, last, hidden)
    lasts = [TensorType(x.dtype, last)] * (2 if node.op_type == "LSTM" else 1)
    return [TensorType(x.dtype, every), *lasts]


def _hidden_size(node: Node, r: Operand) -> Dim:
    declared = integer(node, "hidden_size")
    if declared is None:
        return r.shape[2]
    if declared < 1:
        raise ContradictionError(f"its hidden_size is {declared}")
    require_length("the last length of R", r.shape[2], declared)
    return declared


def _check_optional(
    node: Node,
    x: Operand,
    directions: int,
    rows: int | None,
    batch: Dim,
    last: tuple[Dim, ...],
    hidden: Dim,
) -> None:
    """Raise unless biases, lengths of sequences, first states and peepholes may be those."""
    wanted: list[tuple[int, str, tuple[Dim, ...]]] = [
        (3, "the bias", (directions, None if rows is None else 2 * rows)),
        (4, "the list of lengths", (batch,)),
        (5, "the first hidden state", last),
    ]
    if node.op_type == "LSTM":
        weights = 3 * hidden if isinstance(hidden, int) else None
        wanted += [
            (6, "the first cell state", last),
            (7, "the peepholes", (directions, weights)),
        ]
    for index, what, shape in wanted:
        given = operand(node, index)
        if given is None:
            continue
        require_shape(what, given, *shape)
        if index == 4:
            require_type("lengths of sequences", given, (DType.INT32,))
        else:
            require_same_type(f"the input and {what}", x, given)
