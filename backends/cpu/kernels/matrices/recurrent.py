"""LSTM, GRU and RNN: by a kernel of our own, else as one primitive each; rare ones by numpy.

The kernel wants float32 and weights that are constants (native_recurrent.py), and the rest is here.
oneDNN sees sequences as (time, batch, channels), states as (layer, direction, batch, channels) and
weights as (layer, direction, input, gate, output). Its results of two directions lie side by side
in the channels, which is a view of what ONNX wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float, c_int, c_uint
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.operators.recurrent.recurrent_activations import activation_sets
from ...onednn.bindings import (
    ARG,
    ELTWISE,
    FORWARD_INFERENCE,
    Attributes,
    Desc,
    OneDnnError,
    PrimitiveDesc,
)
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..movement.shapes import word_of
from ..movement.views import permuted
from ..numpy_operators import lower_by_numpy
from ..registry import kernel
from .native_recurrent import MOST_SEQUENCES, is_native, lower_native
from .recurrent_cell import ACTIVATIONS, Cell, text_of

Array = np.ndarray[Any, Any]

_DIRECTIONS = {"forward": 1, "reverse": 2, "bidirectional": 3}
_RNN_ALGORITHMS = {"Tanh": "tanh", "Relu": "relu", "Sigmoid": "logistic"}
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
"""Where each gate that oneDNN wants, in its order, stands in ONNX's."""


def _refuses(node: Node) -> str | None:
    """Ask for activations that there are."""
    given = node.attributes
    try:
        activation_sets(
            given.get("activations"),
            given.get("activation_alpha"),
            given.get("activation_beta"),
            ACTIVATIONS[node.op_type],
        )
    except ValueError as error:
        return str(error)
    return None


def _is_for_numpy(node: Node, cell: Cell) -> bool:
    """True if oneDNN's cells lack something that the node asks for."""
    lengths = node.input_at(4)
    if lengths is not None:
        known = lengths.constant
        if known is None or known.shape != (cell.batch,) or (known != cell.time).any():
            return True
    if node.input_at(7) is not None or node.attributes.get("input_forget"):
        return True
    return node.attributes.get("clip") is not None or not cell.has_own_activations(node)


@kernel("LSTM", "GRU", "RNN", refuses=_refuses)
def lower_recurrent(node: Node, builder: PlanBuilder) -> None:
    """Lower a recurrent layer; results without users are not written.

    Weights that are no constants are ordered by numpy in each run. Where the kernel does not take a
    layer, numpy computes all of it if it has peepholes, clips, couples its gates or has other
    activations than oneDNN's cells, or sequences that are not known to be all as long as the input.
    """
    cell = Cell.of(node, builder)
    cell.check(node, builder)
    is_empty = 0 in (cell.time, cell.batch, cell.hidden)
    is_rare = _is_for_numpy(node, cell)
    is_wanted = is_rare or builder.thread_count > 1 or cell.batch <= MOST_SEQUENCES
    if is_wanted and not is_empty and is_native(node, cell):
        lower_native(node, cell, builder)
        return
    if is_rare:
        lower_by_numpy(node, builder)
        return
    wanted = [value for value in node.outputs if value.uses or value.is_graph_output]
    if is_empty:
        _lower_empty(node, cell, wanted, builder)
        return
    has_states = bool(set(node.outputs[1:]) & set(wanted))
    pd = _primitive_desc(node, cell, has_states, builder)
    reads = _reads(node, cell, pd, builder)
    sequence = _sequence_result(node, cell, pd, builder)
    writes = {ARG.DST: sequence}
    if has_states:
        roles = (ARG.DST_1, ARG.DST_2) if cell.has_memory else (ARG.DST_1,)
        writes |= {role: builder.temporary(Layout.of(pd.desc("exec_arg", role))) for role in roles}
        for value, role in zip(node.outputs[1:], roles, strict=False):
            builder.define(value, _state_view(writes[role], cell, builder))
    builder.primitive(pd, reads, writes)


def _primitive_desc(
    node: Node, cell: Cell, has_states: bool, builder: PlanBuilder
) -> PrimitiveDesc:
    """Ask for the layer in the cell's element type, or in float32 where it is not to be had."""
    try:
        return _primitive_desc_in(cell.dtype, node, cell, has_states, builder)
    except OneDnnError:
        if cell.dtype is DType.FLOAT32:
            raise
        return _primitive_desc_in(DType.FLOAT32, node, cell, has_states, builder)


def _primitive_desc_in(
    dtype: DType, node: Node, cell: Cell, has_states: bool, builder: PlanBuilder
) -> PrimitiveDesc:
    engine = builder.engine
    gates, width = len(_GATES[cell.op_type]), cell.directions * cell.hidden
    channels = max(1, cell.channels)  # where there are none, one of zeros: oneDNN divides by them
    start = engine.desc(cell.state_dims, dtype) if _has_start(node) else None
    memory = engine.desc(cell.state_dims, DType.FLOAT32)
    biases = gates + cell.resets_late
    end = engine.desc(cell.state_dims, dtype) if has_states else None
    is_lstm = cell.has_memory
    name, first = _CELLS[cell.op_type](node, cell)
    return engine.primitive_desc(
        name,
        engine,
        c_int(FORWARD_INFERENCE),
        *first,
        c_int(_DIRECTIONS[node.text("direction", "forward")]),
        engine.any_desc((cell.time, cell.batch, channels), dtype),
        start,
        *((memory if start else None,) if is_lstm else ()),
        engine.any_desc((1, cell.directions, channels, gates, cell.hidden), dtype),
        engine.any_desc((1, cell.directions, cell.hidden, gates, cell.hidden), dtype),
        *((None, None) if is_lstm else ()),
        engine.desc((1, cell.directions, biases, cell.hidden), DType.FLOAT32),
        engine.any_desc((cell.time, cell.batch, width), dtype),
        end,
        *((memory if end else None,) if is_lstm else ()),
        c_uint(0),
        *((c_float(0.0), c_float(0.0)) if cell.op_type == "RNN" else ()),
        Attributes(engine),
    )


def _rnn(node: Node, cell: Cell) -> tuple[str, Sequence[object]]:
    given = node.attributes.get("activations") or ("Tanh",)
    name = _RNN_ALGORITHMS[text_of(given[0]).capitalize()]
    return "vanilla_rnn_forward", (c_int(ELTWISE[name]),)


def _gru(node: Node, cell: Cell) -> tuple[str, Sequence[object]]:
    return ("lbr_gru_forward" if cell.resets_late else "gru_forward"), ()


_CELLS: Mapping[str, Callable[[Node, Cell], tuple[str, Sequence[object]]]] = {
    "LSTM": lambda node, cell: ("lstm_forward", ()),
    "GRU": _gru,
    "RNN": _rnn,
}


def _reads(node: Node, cell: Cell, pd: PrimitiveDesc, builder: PlanBuilder) -> dict[int, Operand]:
    source, weights, recurrent = node.inputs[:3]
    assert source is not None
    descs = [pd.desc("exec_arg", role) for role in (ARG.SRC, ARG.WEIGHTS, ARG.WEIGHTS_1)]
    if cell.channels:
        given = _sequence(source, cell, descs[0], builder)
        reads = {ARG.SRC: given, ARG.WEIGHTS: _weights(weights, cell, descs[1], builder)}
    else:
        reads = {ARG.SRC: _zeros(descs[0], builder), ARG.WEIGHTS: _zeros(descs[1], builder)}
    reads[ARG.WEIGHTS_1] = _weights(recurrent, cell, descs[2], builder)
    reads[ARG.BIAS] = _bias(node.input_at(3), cell, builder)
    if _has_start(node):
        roles = (ARG.SRC_1, ARG.SRC_2) if cell.has_memory else (ARG.SRC_1,)
        for index, role in enumerate(roles, start=5):
            desc = pd.desc("exec_arg", role)
            reads[role] = _start(node.input_at(index), cell, desc, builder)
    return reads


def _has_start(node: Node) -> bool:
    return node.input_at(5) is not None or node.input_at(6) is not None


def _zeros(desc: Desc, builder: PlanBuilder) -> Operand:
    array = np.zeros(desc.dims, np.float32)
    return builder.packed(array, builder.engine.desc(array.shape, DType.FLOAT32), desc)


def _sequence(value: Value, cell: Cell, desc: Desc, builder: PlanBuilder) -> Operand:
    if not cell.is_batch_first:
        return builder.reordered(value, desc)
    return _placed(permuted(builder.operand(value), (1, 0, 2), builder), desc, builder)


def _start(value: Value | None, cell: Cell, desc: Desc, builder: PlanBuilder) -> Operand:
    """Return the state before the first step; zeros where only the other one is given."""
    if value is None:
        return builder.constant_operand(np.zeros(desc.dims, desc.dtype.numpy))
    operand = builder.plain(value, DType.FLOAT32)
    if cell.is_batch_first:
        operand = permuted(operand, (1, 0, 2), builder)
    strides = operand.layout.strides
    assert strides is not None
    layer = Layout.plain(cell.state_dims, DType.FLOAT32, (cell.batch * cell.hidden, *strides))
    return _placed(operand.viewed(layer), desc, builder)


def _placed(operand: Operand, desc: Desc, builder: PlanBuilder) -> Operand:
    """Move an operand into a layout, unless it lies so."""
    if operand.layout.has_desc and operand.layout.desc(builder.engine) == desc:
        return operand
    made = builder.temporary(Layout.of(desc))
    builder.move(operand, made)
    return made


def _sequence_result(node: Node, cell: Cell, pd: PrimitiveDesc, builder: PlanBuilder) -> Operand:
    """Place Y: (time, direction, batch, hidden), or (batch, time, direction, hidden)."""
    layout = Layout.of(pd.desc("exec_arg", ARG.DST))
    strides = layout.strides
    assert strides is not None
    result = node.outputs[0]
    time, batch, hidden = (cell.time, strides[0]), (cell.batch, strides[1]), (cell.hidden, 1)
    direction = (cell.directions, cell.hidden)
    axes = (
        (batch, time, direction, hidden)
        if cell.is_batch_first
        else (time, direction, batch, hidden)
    )
    view = Layout.plain([dim for dim, _ in axes], layout.dtype, [stride for _, stride in axes])
    if view.is_row_major and layout.is_row_major:
        return builder.result(result, Layout.plain(view.shape, layout.dtype)).viewed(layout)
    made = builder.temporary(layout)
    builder.define(result, made.viewed(view))
    return made


def _state_view(operand: Operand, cell: Cell, builder: PlanBuilder) -> Operand:
    """View a state as ONNX does: (direction, batch, hidden), or the batch first."""
    strides = operand.layout.strides
    assert strides is not None
    view = operand.viewed(Layout.plain(cell.state_dims[1:], operand.dtype, strides[1:]))
    return permuted(view, (1, 0, 2), builder) if cell.is_batch_first else view


def _lower_empty(node: Node, cell: Cell, wanted: Sequence[Value], builder: PlanBuilder) -> None:
    """Lower a layer without steps, sequences or hidden channels: its states stay as they were."""
    for index, value in enumerate(node.outputs):
        if value not in wanted:
            continue
        start = node.input_at(4 + index) if index else None
        if start is not None:
            builder.define(value, builder.operand(start))
            continue
        made = builder.result(value, Layout.plain(builder.shape(value), DType.FLOAT32))
        if made.layout.count:
            word = word_of(np.zeros(1, np.float32))
            builder.native("fill", (made,), (DType.FLOAT32.item_bytes, made.layout.count, word))


def _weights(value: Value | None, cell: Cell, desc: Desc, builder: PlanBuilder) -> Operand:
    """Return W or R as (layer, direction, input, gate, output), packed if it is a constant."""
    assert value is not None
    if value.constant is not None:
        source = value.constant
        gates = builder.derived(
            f"gates of {cell.op_type}", [source], lambda: _gates_in_order(source, cell)
        )
        return builder.packed(gates, builder.engine.desc(gates.shape, DType.FLOAT32), desc)
    made = builder.temporary(Layout.plain(desc.dims, DType.FLOAT32))

    def order(given: Array, target: Array) -> None:
        target[...] = _gates_in_order(given, cell)

    builder.numpy(order, [builder.plain(value), made])
    return _placed(made, desc, builder)


def _bias(value: Value | None, cell: Cell, builder: PlanBuilder) -> Operand:
    """Return B as (layer, direction, gate, output): both of its halves in one.

    Zeros where there is none: oneDNN computes no layer without a bias.
    """
    gates = len(_GATES[cell.op_type]) + cell.resets_late
    dims = (1, cell.directions, gates, cell.hidden)
    if value is None:
        return builder.constant_operand(np.zeros(dims, np.float32))
    if value.constant is not None:
        source = value.constant
        name = f"bias of {cell.op_type}, {cell.resets_late}"
        return builder.constant_operand(
            builder.derived(name, [source], lambda: _joined_bias(source, cell))
        )
    made = builder.temporary(Layout.plain(dims, DType.FLOAT32))

    def join(given: Array, target: Array) -> None:
        target[...] = _joined_bias(given, cell)

    builder.numpy(join, [builder.plain(value), made])
    return made


def _gates_in_order(weights: Array, cell: Cell) -> Array:
    """Turn (direction, gate * output, input) into oneDNN's order of axes and of gates."""
    order = list(_GATES[cell.op_type])
    gates = weights.reshape(cell.directions, len(order), cell.hidden, -1)[:, order]
    return np.ascontiguousarray(gates.transpose(0, 3, 1, 2)[None])


def _joined_bias(bias: Array, cell: Cell) -> Array:
    order = list(_GATES[cell.op_type])
    halves = bias.reshape(cell.directions, 2, len(order), cell.hidden)[:, :, order]
    total = halves.sum(axis=1)
    if cell.resets_late:
        total = np.concatenate([total[:, :2], halves[:, 0, 2:], halves[:, 1, 2:]], axis=1)
    return np.ascontiguousarray(total[None], np.float32)
