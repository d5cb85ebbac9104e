"""Operators that join many elements to one: pools, reductions, normalisations, running sums."""

from __future__ import annotations

import numpy as np

from property.operators.cases import FLOATS, Case, generator, given, is_float
from property.operators.matmuls import draw_window


@generator("MaxPool", "AveragePool", "LpPool")
def draw_pool(case: Case, op_type: str) -> None:
    rank = case.number(1, 3)
    window = draw_window(case, rank)
    shape = (*case.numbers(2, 1, 3), *case.numbers(rank, 5, 9))
    x = case.array(shape, case.dtype())
    if "auto_pad" not in window and case.flag():
        window["ceil_mode"] = 1
    outputs = 1
    if op_type == "MaxPool" and case.flag():
        outputs, window["storage_order"] = 2, case.number(0, 1)
    elif op_type == "AveragePool" and case.flag():
        window["count_include_pad"] = 1
    elif op_type == "LpPool":
        window["p"] = case.number(1, 3)
    case.give(op_type, case.feed(x, known=False), outputs=outputs, **window)


@generator("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def draw_global_pool(case: Case, op_type: str) -> None:
    x = case.array(case.shape((3, 5), least=1), case.dtype())
    power = case.number(1, 3) if op_type == "GlobalLpPool" else None
    case.give(op_type, case.feed(x, known=False), **given({"p": power}))


@generator(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
def draw_reduction(case: Case, op_type: str) -> None:
    # onnx.reference writes logarithms into integers, and fails.
    dtype = case.dtype(FLOATS if op_type.startswith("ReduceLog") else None)
    has_mean_of_none = op_type != "ReduceMean" or is_float(dtype)
    shape = case.shape((1, 4), least=case.number(0, 1) if has_mean_of_none else 1)
    x = case.array(shape, dtype, *((-1, 2) if op_type == "ReduceProd" else (-5, 5)))
    if op_type not in ("ReduceProd", "ReduceLogSum", "ReduceLogSumExp"):
        x = case.with_specials(x)
    axes = sorted({case.number(0, len(shape) - 1) for _ in range(case.number(0, 3))})
    axes = [axis - len(shape) if case.flag() else axis for axis in axes]
    names = [case.integers(axes)] if axes or case.flag() else []
    case.give(
        op_type,
        case.feed(x, known=False),
        *names,
        keepdims=case.number(0, 1),
        noop_with_empty_axes=case.number(0, 1),
    )


@generator("ArgMax", "ArgMin")
def draw_search(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4), least=1)
    x = case.with_specials(case.array(shape, case.dtype()))
    case.give(
        op_type,
        case.feed(x, known=False),
        axis=case.axis(len(shape)),
        keepdims=case.number(0, 1),
        select_last_index=case.number(0, 1),
    )


@generator("Softmax", "LogSoftmax")
def draw_softmax(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4), least=case.number(0, 1))
    x = case.with_specials(case.array(shape, case.dtype()))
    case.give(op_type, case.feed(x, known=False), axis=case.axis(len(shape)))


@generator("LayerNormalization", "RMSNormalization")
def draw_rows(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    shape = case.shape((1, 4), least=1)
    axis = case.axis(len(shape))
    x = case.feed(case.array(shape, dtype), known=False)
    factors = [case.feed(case.array(shape[axis:], dtype))]
    outputs = 1
    if op_type == "LayerNormalization":
        # onnx.reference gives statistics in the input's type; they are float32.
        outputs = case.number(1, 3) if dtype == np.float32 else 1
        if case.flag():
            factors.append(case.feed(case.array(shape[axis:], dtype)))
    case.give(op_type, x, *factors, axis=axis, epsilon=0.25, outputs=outputs)


@generator("InstanceNormalization", "GroupNormalization", "BatchNormalization")
def draw_channels(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    groups = case.number(1, 3)
    batch, *lengths = case.shape((2, 4), least=1)
    channels = groups * case.number(1, 3)
    x = case.feed(case.array((batch, channels, *lengths), dtype), known=False)
    names = [case.feed(case.array((channels,), dtype)) for _ in range(2)]
    if op_type == "BatchNormalization":
        names.append(case.feed(case.array((channels,), dtype)))
        names.append(case.feed(case.array((channels,), dtype, 0.25, 5)))
    grouped = groups if op_type == "GroupNormalization" else None
    case.give(op_type, x, *names, epsilon=0.25, **given({"num_groups": grouped}))


@generator("LRN")
def draw_lrn(case: Case, op_type: str) -> None:
    x = case.array(case.numbers(4, 1, 7), case.dtype())
    numbers = {"alpha": 0.5, "beta": 0.5, "bias": 2.0} if case.flag() else {}
    case.give(op_type, case.feed(x, known=False), size=case.number(1, 5), **numbers)


@generator("CumSum")
def draw_running_sum(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4))
    x = case.array(shape, case.dtype())
    axis = case.feed(np.array(case.axis(len(shape)), case.one_of([np.int64, np.int32])))
    flags = {"exclusive": case.number(0, 1), "reverse": case.number(0, 1)}
    case.give(op_type, case.feed(x, known=False), axis, **flags)
