"""LSTM, GRU and RNN by a kernel of our own, behind one matmul for what all inputs add to the gates.

Theory of operation. What x adds to the gates depends on no state: one matmul computes it for all
steps and directions. The states then go from step to step in native code, which reads the recurrent
weights as the matmul writes: hidden units in blocks, of which all gates lie side by side. Rows are
read, and results written, with steps or sequences outside, as the input lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from ...native.step_runner import double_bits
from ...onednn.bindings import ARG, Attributes
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..movement.views import permuted
from .inner_product import INNER_PRODUCT, inner_product, row_desc
from .recurrent_cell import Cell

__all__ = ["is_native", "lower_native"]

Array = np.ndarray[Any, Any]

BLOCK = 16
"""Hidden units in a block, as native_recurrent.c has it."""
TOGETHER = 3
"""Sequences that read weights together, as native_recurrent.c has it."""
MULTIPLY_ADDS_PER_THREAD = 1 << 15
"""Of a step that threads share: what takes about a microsecond, as handing states over does."""
MULTIPLY_ADDS_PER_WALK = 1 << 18
"""Of a layer: what takes as long as waking another thread does, or less."""
MOST_SEQUENCES = 4
"""Of more, oneDNN's matrices are faster in one thread; in several it is slower than in one."""

_CELLS = {"LSTM": 0, "GRU": 1, "RNN": 3}
_LATE_GRU = 2
_RNN_ACTIVATIONS = ("Tanh", "Relu", "Sigmoid")
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_SLOTS = (3, 4, 2, 2, 2, 2)
"""Of the states, by the kernel's number of the cell."""
_MEMORY = 2
_W, _R, _BIAS, _LENGTHS, _START, _PEEPHOLES = 1, 2, 3, 4, 5, 7


def is_native(node: Node, cell: Cell) -> bool:
    """True if the kernel can compute a layer: of float32, with weights that are constants."""
    if cell.dtype is not DType.FLOAT32 or not cell.channels or not cell.has_own_activations(node):
        return False
    weights = [node.input_at(place) for place in (_W, _R, _BIAS, _PEEPHOLES)]
    if any(value is not None and value.constant is None for value in weights):
        return False
    return float(node.attributes.get("clip", math.inf)) > 0


def lower_native(node: Node, cell: Cell, builder: PlanBuilder) -> None:
    """Lower a layer as a matmul and the kernel; results without users are not written."""
    layer = _Layer.of(node, cell)
    rows, outside = _rows(node, cell, builder)
    gates = _given_to_gates(node, layer, rows, builder)
    states = builder.temporary(Layout.plain(layer.states_shape, DType.FLOAT32))
    has_start = _fill_start(node, layer, states, builder)
    y, *ends = node.outputs
    result = _result(y, layer, outside, builder) if y.uses or y.is_graph_output else None
    peepholes = _constant(node, _PEEPHOLES)
    lengths = _lengths(node, cell)
    operands = [gates, _recurrent_weights(node, layer, builder)]
    if layer.kind == _LATE_GRU:
        operands.append(_late_bias(node, layer, builder))
    if peepholes is not None:
        operands.append(
            builder.constant_operand(
                builder.derived("peepholes", [peepholes], lambda: layer.padded_peepholes(peepholes))
            )
        )
    if lengths is not None:
        operands.append(builder.plain(lengths))
    operands += [states, *([] if result is None else [result])]
    columns = layer.columns
    steps = (columns, cell.time * columns) if outside else (cell.batch * columns, columns)
    strides = (0, 0, 0) if result is None else _walk_of(result, cell)
    words = (
        layer.kind,
        *(cell.time, cell.batch, cell.hidden, cell.directions),
        {"forward": 0, "reverse": 1, "bidirectional": 2}[node.text("direction", "forward")],
        *(*steps, *strides),
        *(has_start, result is not None, peepholes is not None, lengths is not None),
        bool(node.attributes.get("input_forget")),
        double_bits(float(node.attributes.get("clip", math.inf))),
        *_division(layer, builder.thread_count, lengths is not None),
    )
    builder.native("recurrent", operands, words)
    slots = (0, _MEMORY)
    for value, slot in zip(ends, slots, strict=False):
        if value.uses or value.is_graph_output:
            end = layer.state(states, slot)
            builder.define(value, permuted(end, (1, 0, 2), builder) if cell.is_batch_first else end)


@dataclass(frozen=True)
class _Layer:
    """A layer as the kernel sees it: which cell, and its arrays in blocks."""

    cell: Cell
    kind: int

    @classmethod
    def of(cls, node: Node, cell: Cell) -> _Layer:
        kind = _CELLS[cell.op_type]
        if cell.resets_late:
            kind = _LATE_GRU
        elif cell.op_type == "RNN":
            (name, *_) = node.attributes.get("activations") or ("Tanh",)
            text = name.decode() if isinstance(name, bytes) else name
            kind += _RNN_ACTIVATIONS.index(text.capitalize())
        return cls(cell, kind)

    @property
    def gates(self) -> int:
        return _GATES[self.cell.op_type]

    @property
    def padded(self) -> int:
        """Hidden units in whole blocks."""
        return -(-self.cell.hidden // BLOCK) * BLOCK

    @property
    def columns(self) -> int:
        """What one row of the input adds: (directions, blocks, gates, BLOCK)."""
        return self.cell.directions * self.gates * self.padded

    @property
    def states_shape(self) -> tuple[int, ...]:
        return (_SLOTS[self.kind], self.cell.directions, self.cell.batch, self.padded)

    def state(self, states: Operand, slot: int) -> Operand:
        """View a slot as (directions, batch, hidden)."""
        cell, padded = self.cell, self.padded
        strides = (cell.batch * padded, padded, 1)
        view = Layout.plain((cell.directions, cell.batch, cell.hidden), states.dtype, strides)
        start = slot * cell.directions * cell.batch * padded * states.dtype.item_bytes
        return Operand(states.buffer, view, states.offset_bytes + start)

    def in_blocks(self, array: Array) -> Array:
        """Cut (directions, gates * hidden, ...) into (directions, gates, blocks, BLOCK, ...)."""
        cell, rest = self.cell, array.shape[2:]
        whole = np.zeros((cell.directions, self.gates, self.padded, *rest), np.float32)
        whole[:, :, : cell.hidden] = array.reshape(cell.directions, self.gates, cell.hidden, *rest)
        return whole.reshape(cell.directions, self.gates, -1, BLOCK, *rest)

    def input_weights(self, weights: Array) -> Array:
        """Order W as (channels, columns)."""
        return np.ascontiguousarray(
            self.in_blocks(weights).transpose(4, 0, 2, 1, 3).reshape(-1, self.columns)
        )

    def recurrent_weights(self, weights: Array) -> Array:
        """Order R as (directions, blocks, hidden, gates, BLOCK)."""
        return np.ascontiguousarray(self.in_blocks(weights).transpose(0, 2, 4, 1, 3))

    def bias_row(self, bias: Array) -> Array:
        """Add up both halves of B, but for what ``late_bias`` holds, in the order of columns."""
        first, second = np.split(bias.astype(np.float32), 2, axis=1)
        if self.kind == _LATE_GRU:
            second = second.copy()
            second[:, 2 * self.cell.hidden :] = 0
        blocks = self.in_blocks(first + second)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(-1)

    def late_bias(self, bias: Array) -> Array:
        """Return the bias behind R of the hidden gate, (directions, padded)."""
        _, second = np.split(bias.astype(np.float32), 2, axis=1)
        return np.ascontiguousarray(self.in_blocks(second)[:, 2]).reshape(-1, self.padded)

    def padded_peepholes(self, peepholes: Array) -> Array:
        whole = np.zeros((self.cell.directions, 3, self.padded), np.float32)
        whole[:, :, : self.cell.hidden] = peepholes.reshape(self.cell.directions, 3, -1)
        return whole


def _rows(node: Node, cell: Cell, builder: PlanBuilder) -> tuple[Operand, bool]:
    """Return x as (steps * sequences, channels) as it lies, and whether sequences are outside."""
    (x, *_) = node.inputs
    assert x is not None
    given = builder.operand(x)
    if given.layout.strides is None or given.dtype is not DType.FLOAT32:
        given = builder.plain(x, DType.FLOAT32)
    time, batch, channels = cell.time, cell.batch, cell.channels
    flat = Layout.plain((time * batch, channels), DType.FLOAT32)
    turned = permuted(given, (1, 0, 2), builder)
    by_time, by_sequence = (turned, given) if cell.is_batch_first else (given, turned)
    if by_time.layout.is_row_major:
        return by_time.viewed(flat), False
    if by_sequence.layout.is_row_major:
        return by_sequence.viewed(flat), True
    return builder.plain(x, DType.FLOAT32).viewed(flat), cell.is_batch_first


def _given_to_gates(node: Node, layer: _Layer, rows: Operand, builder: PlanBuilder) -> Operand:
    """Emit the matmul of all rows with W, and the bias."""
    engine, weights, bias = builder.engine, _constant(node, _W), _constant(node, _BIAS)
    assert weights is not None
    name, columns = _name(layer, "input weights"), layer.columns
    matrix = builder.derived(name, [weights], lambda: layer.input_weights(weights))
    left, plain = rows.layout.desc(engine), Attributes(engine)
    pd = inner_product(engine, left, columns, bias is not None, plain)
    rank = 2 if pd is None else 1
    if pd is None:
        pd = engine.primitive_desc(
            "matmul",
            engine,
            left,
            engine.any_desc(matrix.shape, DType.FLOAT32),
            None if bias is None else row_desc(engine, rank, columns),
            engine.desc((rows.shape[0], columns), DType.FLOAT32),
            plain,
        )
    dims, strides = (matrix.shape, None)
    if pd.call == INNER_PRODUCT:
        dims, strides = (columns, matrix.shape[0]), (1, columns)
    lying = engine.desc(dims, DType.FLOAT32, strides)
    reads = {ARG.SRC: rows, ARG.WEIGHTS: builder.packed(matrix, lying, pd.desc("weights"))}
    if bias is not None:
        row = builder.derived(_name(layer, "bias"), [bias], lambda: layer.bias_row(bias))
        dims = (*(1,) * (rank - 1), columns)
        reads[ARG.BIAS] = builder.constant_operand(row).viewed(Layout.plain(dims, DType.FLOAT32))
    made = builder.temporary(Layout.plain((rows.shape[0], columns), DType.FLOAT32))
    builder.primitive(pd, reads, {ARG.DST: made.viewed(Layout.of(pd.desc("dst")))})
    return made


def _recurrent_weights(node: Node, layer: _Layer, builder: PlanBuilder) -> Operand:
    weights = _constant(node, _R)
    assert weights is not None
    name = _name(layer, "recurrent weights")
    return builder.constant_operand(
        builder.derived(name, [weights], lambda: layer.recurrent_weights(weights))
    )


def _late_bias(node: Node, layer: _Layer, builder: PlanBuilder) -> Operand:
    bias = _constant(node, _BIAS)
    if bias is None:
        return builder.constant_operand(np.zeros((layer.cell.directions, layer.padded), np.float32))
    return builder.constant_operand(
        builder.derived("late bias of GRU", [bias], lambda: layer.late_bias(bias))
    )


def _fill_start(node: Node, layer: _Layer, states: Operand, builder: PlanBuilder) -> bool:
    """Put given states, and zeros for the other one, where the kernel begins; False without any."""
    cell = layer.cell
    slots = (0, _MEMORY) if cell.has_memory else (0,)
    given = [node.input_at(_START + index) for index in range(len(slots))]
    if not any(given):
        return False
    for value, slot in zip(given, slots, strict=True):
        target = layer.state(states, slot)
        if value is None:
            zeros = np.zeros((1, 1, 1), np.float32)
            source = builder.constant_operand(zeros).viewed(
                Layout.plain(target.shape, DType.FLOAT32, (0, 0, 0))
            )
        else:
            source = builder.plain(value, DType.FLOAT32)
            source = permuted(source, (1, 0, 2), builder) if cell.is_batch_first else source
        builder.copy(source, target)
    return True


def _result(value: Value, layer: _Layer, outside: bool, builder: PlanBuilder) -> Operand:
    """Place Y row-major where it leaves the network, else as x lies, with directions side by side.

    Then what exporters write behind it, to join directions and to turn the axes back, are views.
    """
    cell = layer.cell
    shape = builder.shape(value)
    width = cell.directions * cell.hidden
    time, batch = (width, cell.time * width) if outside else (cell.batch * width, width)
    strides = (time, cell.hidden, batch, 1)
    if cell.is_batch_first:
        strides = (batch, time, cell.hidden, 1)
    view = Layout.plain(shape, DType.FLOAT32, strides)
    if value.is_graph_output or view.is_row_major:
        return builder.result(value, Layout.plain(shape, DType.FLOAT32))
    return builder.define(value, builder.temporary(view))


def _walk_of(result: Operand, cell: Cell) -> tuple[int, int, int]:
    """Return the strides of time, direction and batch."""
    strides = result.layout.strides
    assert strides is not None
    if cell.is_batch_first:
        batch, time, direction, _ = strides
    else:
        time, direction, batch, _ = strides
    return time, direction, batch


def _lengths(node: Node, cell: Cell) -> Value | None:
    """Return the lengths of sequences, unless all are known to be as long as the input."""
    value = node.input_at(_LENGTHS)
    if value is None or value.constant is None:
        return value
    return value if (value.constant != cell.time).any() else None


def _division(layer: _Layer, threads: int, has_lengths: bool) -> tuple[int, int]:
    """Choose the threads, and how many sequences one of them walks with from end to end.

    Where there are as many walks as threads, these need not wait for each other; otherwise they
    share each step. Portions are whole groups of sequences that read weights together, so that
    results are the same by any number of threads; sequences that end early would form others.
    """
    cell = layer.cell
    step = cell.directions * cell.batch * layer.gates * cell.hidden * cell.hidden
    if threads == 1 or step * cell.time <= MULTIPLY_ADDS_PER_WALK:
        return 1, cell.batch
    if cell.directions >= threads:
        return threads, cell.batch
    blocks = cell.directions * layer.padded // BLOCK
    sharing = max(1, min(threads, step // MULTIPLY_ADDS_PER_THREAD, blocks))
    if sharing < threads and not has_lengths:
        groups = -(-cell.batch // TOGETHER)
        rows = min(cell.batch, TOGETHER * -(-groups * cell.directions // threads))
        walks = cell.directions * -(-cell.batch // rows)
        if walks > sharing:
            return min(threads, walks), rows
    return max(cell.directions, sharing), cell.batch


def _constant(node: Node, place: int) -> Array | None:
    value = node.input_at(place)
    return None if value is None else value.constant


def _name(layer: _Layer, what: str) -> str:
    return f"{what} of {layer.cell.op_type} {layer.kind}"
