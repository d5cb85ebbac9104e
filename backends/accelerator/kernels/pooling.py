"""Pools: each work-item looks through one window; global ones are reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.graph import DType, Node
from ....runtime.lowering.window import Window, window_of
from ..elementwise.c_types import C_TYPES, extremes
from ..elementwise.fused_launch import line_groups
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements, whole
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .reductions import FLOAT_REDUCTIONS, Reduction, launch_reduction
from .registry import FLOATS, kernel
from .window_code import (
    check_windows,
    end_lengths,
    lengths_of,
    nested_index,
    padded_count,
    parameters_of,
    place_lines,
    window_loops,
)

__all__ = ["read_pool"]

_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int count,
                    const int pixels{parameters}) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int plane = i / pixels;
    int rest = i % pixels;
    {places}
    {start}
    {loops}
        const {register} v = {load};
        {update}
    {ends}
    {finish}
}}
"""


@kernel("MaxPool", dtypes=FLOATS | {DType.INT8, DType.UINT8})
def lower_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a maximum of each window, and where it is if that is asked for.

    NaN wins, but the search for the place takes it only where it comes first.
    """
    source, made, window = read_pool(node, builder)
    dtype, kind = made.dtype, C_TYPES[made.dtype]
    start = f"{kind.register} best = {extremes(dtype)[0]};"
    finish = kind.store("best", "y", "i")
    asked = [value for value in node.outputs[1:] if value.uses or value.is_graph_output]
    if not asked:
        function = "greatest" if dtype in FLOATS else "max"
        _launch(builder, source, made, window, (start, f"best = {function}(best, v);", finish))
        return
    builder.expect_shape(asked[0], made.shape)
    places = builder.result(asked[0])
    axes = range(len(window.kernel))
    is_turned = bool(node.attributes.get("storage_order", 0))
    place = nested_index("0", reversed(axes) if is_turned else axes)
    size = " * ".join(f"x{axis}" for axis in axes)
    _launch(
        builder,
        source,
        made,
        window,
        (
            f"{start} int place = -1;",
            f"if (place < 0 || v > best) {{ best = v; place = {place}; }}",
            f"{finish} z[i] = place + (long)plane * {size};",
        ),
        ", __global long *z",
        [places],
    )


@kernel("AveragePool")
def lower_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average of what a window sees of the input, or of that and its padding."""
    source, made, window = read_pool(node, builder)
    store = C_TYPES[made.dtype].store("sum / seen", "y", "i")
    if not node.attributes.get("count_include_pad", 0):
        texts = "float sum = 0.0f, seen = 0.0f;", "sum += v; seen += 1.0f;", store
        _launch(builder, source, made, window, texts)
        return
    named = end_lengths(window)
    texts = "float sum = 0.0f;", "sum += v;", f"const float seen = {padded_count(window)}; {store}"
    _launch(
        builder, source, made, window, texts, parameters_of(named), [number for _, number in named]
    )


@kernel("LpPool")
def lower_lp_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower p-norms of windows; padding is zeros."""
    source, made, window = read_pool(node, builder)
    norm = _norm(node)
    texts = (
        "float acc = 0.0f;",
        f"acc += {norm.value};",
        C_TYPES[made.dtype].store(norm.finish, "y", "i"),
    )
    _launch(builder, source, made, window, texts)


@kernel("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def lower_global_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a reduction of all spatial axes."""
    (source,) = node.inputs
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    known = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
    reduction = FLOAT_REDUCTIONS[known[node.op_type]] if node.op_type in known else _norm(node)
    launch_reduction(builder, reduction, operand, made, range(2, len(operand.shape)))


def _norm(node: Node) -> Reduction:
    power = int(node.attributes.get("p", 2))
    if power <= 2:
        return FLOAT_REDUCTIONS["ReduceL1" if power == 1 else "ReduceL2"]
    return Reduction(f"pow(fabs(v), {power}.0f)", finish=f"pow(acc, 1.0f / {power}.0f)")


def read_pool(
    node: Node, builder: PlanBuilder, axes: slice = slice(2, None)
) -> tuple[Operand, Operand, Window]:
    """Return what a pool reads and makes, and its window; ``axes`` are the spatial ones."""
    source = node.inputs[0]
    assert source is not None
    operand = builder.operand(source)
    size = [int(length) for length in node.attributes["kernel_shape"]]
    places = operand.shape[axes]
    if len(size) != len(places) or not size:
        raise builder.contradiction(f"a window of {size} is not for {list(operand.shape)}")
    window, made = window_of(node, size, places), builder.result(node.outputs[0])
    check_windows(builder, window, places, made.shape[axes])
    planes = [item.count // max(1, math.prod(item.shape[axes])) for item in (operand, made)]
    if operand.count and made.count and planes[0] != planes[1]:
        raise builder.contradiction(f"{list(operand.shape)} does not become {list(made.shape)}")
    return operand, made, window


def _launch(
    builder: PlanBuilder,
    source: Operand,
    made: Operand,
    window: Window,
    texts: tuple[str, str, str],
    parameters: str = "",
    arguments: Sequence[LaunchArgument] = (),
) -> None:
    """Launch a pool; ``texts`` are what comes before the loops, inside of them, and behind."""
    rank, kind = len(window.kernel), C_TYPES[made.dtype]
    start, update, finish = texts
    named = lengths_of(source.shape[2:], made.shape[2:], window.pads_begin)
    pixels = math.prod(made.shape[2:])
    text = _TEXT.format(
        memory=kind.memory,
        register=kind.register,
        parameters=parameters_of(named) + parameters,
        places=place_lines(rank),
        start=start,
        loops=window_loops(window),
        load=kind.load("x", nested_index("plane", range(rank))),
        update=update,
        ends="}" * rank,
        finish=finish,
    )
    given: list[LaunchArgument] = [source, made, made.count, pixels]
    given += [*(number for _, number in named), *arguments]
    planes = made.count // max(1, pixels)
    reaches = [
        elements(planes * math.prod(source.shape[2:]), made.dtype),
        elements(made.count, made.dtype),
        *[whole(item) for item in arguments if isinstance(item, Operand)],
    ]
    builder.launch(KernelSource.of("pool", text), given, *line_groups(builder, made.count), reaches)
