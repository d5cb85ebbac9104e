"""Reductions over any axes, and the search for the largest or smallest element along one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ....errors import UnsupportedOpError
from ....runtime.graph import DType, Node
from ....runtime.lowering.reduction import reduced_axes
from ....runtime.lowering.strides import row_major
from ..elementwise.c_types import C_TYPES, INTEGERS, extremes
from ..elementwise.operand_walk import index_code, plan_walk
from ..launching.kernel_source import KernelSource
from ..launching.reach import box, elements
from ..launching.row_groups import RowGroups
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .registry import FLOATS, kernel

__all__ = ["FLOAT_REDUCTIONS", "Reduction", "launch_reduction"]


@dataclass(frozen=True)
class Reduction:
    """What is joined of the elements ``v``, from ``start`` on, and made of the outcome ``acc``.

    With ``is_shifted``, ``shift`` is the largest element, or 0 where that is infinite.
    """

    value: str = "v"
    start: str = "0"
    join: str = "{a} + {b}"
    finish: str = "acc"
    is_shifted: bool = False


_SUM = Reduction()
_PRODUCT = Reduction(start="1", join="{a} * {b}")

FLOAT_REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceL1": Reduction("fabs(v)"),
    "ReduceL2": Reduction("v * v", finish="sqrt(acc)"),
    "ReduceLogSum": Reduction(finish="log(acc)"),
    "ReduceLogSumExp": Reduction("exp(v - shift)", finish="log(acc) + shift", is_shifted=True),
    "ReduceMax": Reduction(start="-INFINITY", join="greatest({a}, {b})"),
    "ReduceMean": Reduction(finish="length ? acc / length : 0"),
    "ReduceMin": Reduction(start="INFINITY", join="least({a}, {b})"),
    "ReduceProd": _PRODUCT,
    "ReduceSum": _SUM,
    "ReduceSumSquare": Reduction("v * v"),
}

_INTEGER_REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceL1": Reduction("v < 0 ? -v : v"),
    "ReduceMax": Reduction(join="max({a}, {b})"),
    "ReduceMean": Reduction(finish="length ? acc / length : 0"),
    "ReduceMin": Reduction(join="min({a}, {b})"),
    "ReduceProd": _PRODUCT,
    "ReduceSum": _SUM,
    "ReduceSumSquare": Reduction("v * v"),
}

_TEXT = """
__kernel void $name(__global const {x_type} *x, __global {y_type} *y, {rows}{parameters}) {{
    {start}
    {row_lines}
    {folds}
    if ({writes}) {{ {store} }}
}}
"""


@kernel(*(FLOAT_REDUCTIONS.keys() - _INTEGER_REDUCTIONS.keys()), constant_inputs=(1,))
@kernel(*_INTEGER_REDUCTIONS, dtypes=FLOATS | INTEGERS | {DType.BOOL}, constant_inputs=(1,))
def lower_reduction(node: Node, builder: PlanBuilder) -> None:
    """Lower a reduction; floats are joined in float32, integers in their own type."""
    source = node.inputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    axes = reduced_axes(node, len(operand.shape))
    launch_reduction(builder, _reduction(node.op_type, operand.dtype), operand, made, axes)


def _reduction(op_type: str, dtype: DType) -> Reduction:
    if dtype in FLOATS:
        return FLOAT_REDUCTIONS[op_type]
    found = _INTEGER_REDUCTIONS[op_type]
    lowest, highest = extremes(dtype)
    starts = {"ReduceMax": lowest, "ReduceMin": highest}
    return Reduction(found.value, starts.get(op_type, found.start), found.join, found.finish)


def launch_reduction(
    builder: PlanBuilder,
    reduction: Reduction,
    source: Operand,
    made: Operand,
    axes: Collection[int],
) -> None:
    """Launch a reduction of a tensor over some axes, or over none; floats have those of float."""
    shape, strides = source.shape, row_major(source.shape)
    ranks = range(len(shape))
    kept, reduced = ([a for a in ranks if (a in axes) is wanted] for wanted in (False, True))
    walks = [
        plan_walk([shape[a] for a in own], [[strides[a] for a in own]]) for own in (kept, reduced)
    ]
    steps = walks[1].strides[0]
    groups = RowGroups(
        math.prod(walks[0].lengths), math.prod(walks[1].lengths), bool(steps) and steps[-1] > 1
    )
    if groups.rows != made.count:
        raise builder.contradiction(
            f"{list(shape)} over the axes {sorted(axes)} does not become {list(made.shape)}"
        )
    codes = [index_code(walk, name, name) for walk, name in zip(walks, ("row", "k"), strict=True)]
    kinds = C_TYPES[source.dtype], C_TYPES[made.dtype]
    place = " + ".join(f"({code.expressions[0]})" for code in codes)
    register = kinds[0].register
    lines = " ".join([*codes[1].lines, f"const {register} v = {kinds[0].load('x', place)};"])
    folds = []
    if reduction.is_shifted:
        folds.append(groups.fold("top", lines, "v", "-INFINITY", "greatest({a}, {b})"))
        folds.append("const float shift = isinf(top) ? 0.0f : top;")
    folds.append(
        groups.fold("acc", lines, reduction.value, reduction.start, reduction.join, register)
    )
    named = [*codes[0].parameters, *codes[1].parameters]
    text = _TEXT.format(
        x_type=kinds[0].memory,
        y_type=kinds[1].memory,
        rows=groups.parameters,
        parameters="".join(f", const int {name}" for name, _ in named),
        start=groups.start,
        row_lines=" ".join(codes[0].lines),
        folds="\n    ".join(folds),
        writes=groups.writes,
        store=kinds[1].store(reduction.finish, "y", "row"),
    )
    arguments: list[LaunchArgument] = [source, made, groups.rows, groups.length]
    arguments += [number for _, number in named]
    lengths = [length for walk in walks for length in walk.lengths]
    read = box(lengths, [*walks[0].strides[0], *steps], source.dtype)
    reaches = [read, elements(groups.rows, made.dtype)]
    builder.launch(KernelSource.of("reduce", text), arguments, *groups.sizes, reaches)


@kernel("ArgMax", "ArgMin", dtypes=FLOATS | INTEGERS)
def lower_position(node: Node, builder: PlanBuilder) -> None:
    """Lower a search: first for the value, in which NaN wins, then for where it is."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(result)
    shape = operand.shape or (1,)
    axis = builder.axis(int(node.attributes.get("axis", 0)), len(shape))
    length, inner = shape[axis], math.prod(shape[axis + 1 :])
    if made.count and not length:
        reason = f"axis {axis} of {source.name!r} has no elements to search"
        raise UnsupportedOpError(node.name, node.op, builder.device, reason)
    kind = C_TYPES[operand.dtype]
    name = "ReduceMax" if node.op_type == "ArgMax" else "ReduceMin"
    search = _reduction(name, operand.dtype)
    groups = RowGroups(math.prod(shape[:axis]) * inner, length, inner > 1)
    lines = f"const {kind.register} v = {kind.load('x', 'first + k * inner')};"
    is_last = bool(node.attributes.get("select_last_index", 0))
    none, join = ("-1", "max({a}, {b})") if is_last else ("INT_MAX", "min({a}, {b})")
    is_found = f"v == top || (v != v && top != top) ? k : {none}"
    text = _TEXT.format(
        x_type=kind.memory,
        y_type=C_TYPES[made.dtype].memory,
        rows=groups.parameters,
        parameters=", const int inner",
        start=groups.start,
        row_lines="const int first = row / inner * inner * length + row % inner;",
        folds=groups.fold("top", lines, "v", search.start, search.join, kind.register)
        + groups.fold("place", lines, is_found, none, join, "int"),
        writes=groups.writes,
        store=C_TYPES[made.dtype].store("place", "y", "row"),
    )
    arguments: list[LaunchArgument] = [operand, made, groups.rows, length, inner]
    reaches = [elements(groups.rows * length, operand.dtype), elements(groups.rows, made.dtype)]
    if groups.rows != made.count:
        raise builder.contradiction(f"{list(shape)} does not become {list(made.shape)}")
    builder.launch(KernelSource.of("search", text), arguments, *groups.sizes, reaches)
