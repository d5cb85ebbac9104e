"""Normalisations: of rows and groups with statistics of their own, of batches, and of neighbours.

Rows are walked by as many work-items as there is work for; sums are float32, and variances are
those of differences from the mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....runtime.graph import DType, Node, Value
from ....runtime.lowering.normalization import (
    find_low_rank,
    find_other_batch_normalization,
    find_other_parameters,
    find_other_precision,
)
from ....runtime.passes.rewriting.matching import dtype_of
from ..elementwise.c_types import C_TYPES, CType
from ..elementwise.element_words import WORD_BYTES, ElementWords
from ..elementwise.fused_launch import fused_launch, line_groups
from ..elementwise.fused_step import FusedStep
from ..elementwise.operand_walk import IndexCode, broadcast_strides, index_code, plan_walk
from ..launching.kernel_source import KernelSource
from ..launching.reach import Reach, box, elements
from ..launching.row_groups import RowGroups, block_of_rows
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .registry import FLOATS, kernel

_ROWS_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, {rows},
                    const float epsilon{parameters}) {{
    {start}
    {folds}
    const float factor = 1.0f / sqrt(squares / length + epsilon);
    {loop}
        const int i = row * length + k;
        {lines}
        {store}
    }}
    {statistics}
}}
"""

_BLOCK_ROWS_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, {rows},
                    const float epsilon{parameters}) {{
    {start}
    const int first = min(row, rows - 1) * {blocks};
    {loads}
    {folds}
    const float factor = 1.0f / sqrt(squares / length + epsilon);
    if (row < rows) {{
    {stores}
    }}
    {statistics}
}}
"""

_LRN_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int count,
                    const int channels, const int inner, const int before, const int behind,
                    const float alpha, const float beta, const float bias) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int c = i / inner % channels;
    const int last = min(c + behind, channels - 1);
    float sum = 0.0f;
    for (int o = max(c - before, 0); o <= last; o++) {{
        const float v = {near};
        sum += v * v;
    }}
    {store}
}}
"""


_SIGNS = {"scale": "*", "shift": "+"}
_LONGEST_BLOCK = 8
"""Elements; four such blocks are what a work-item has registers for."""


def _refuses_parameters(node: Node) -> str | None:
    return find_other_parameters(node, FLOATS)


def _refuses_rows(node: Node) -> str | None:
    return find_other_precision(node) or _refuses_parameters(node) or _refuses_result(node)


def _refuses_result(node: Node) -> str | None:
    """Ask for a result of the input's element type; here it is that of the scale."""
    x, scale = (dtype_of(value) for value in node.inputs[:2])
    if node.op_type == "RMSNormalization" and x is not None and scale not in (x, None):
        return f"{node.op} of {x.label} runs with a scale of that type, not of {scale.label}"
    return None


def _refuses_channels(node: Node) -> str | None:
    return find_low_rank(node) or _refuses_parameters(node)


def _refuses_batches(node: Node) -> str | None:
    return find_other_batch_normalization(node) or _refuses_channels(node)


@kernel("LayerNormalization", "RMSNormalization", refuses=_refuses_rows)
def lower_rows(node: Node, builder: PlanBuilder) -> None:
    """Lower a normalisation over the last axes, from ``axis`` on, and its statistics if asked."""
    source = _operand(node, 0, builder)
    made = builder.result(node.outputs[0])
    shape = made.shape
    axis = builder.axis(int(node.attributes.get("axis", -1)), len(shape))
    rows, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    names = ("mean", "factor")
    statistics = {
        name: builder.result(value)
        for name, value in zip(names, node.outputs[1:], strict=False)
        if value.uses or value.is_graph_output
    }
    factors = _factors(node, builder)
    block = 1
    if builder.moves_words and all(_is_row(f.shape, shape[axis:]) for f in factors.values()):
        types = [made.dtype, *(factor.dtype for factor in factors.values())]
        longest = min(_LONGEST_BLOCK, WORD_BYTES // max(dtype.item_bytes for dtype in types))
        block = block_of_rows(length, longest)
    groups = RowGroups(rows, length, block=block)
    has_mean = node.op_type == "LayerNormalization"
    _launch(node, builder, source, made, groups, _Spread(shape, factors), statistics, has_mean)


@kernel("InstanceNormalization", refuses=_refuses_channels)
def lower_instances(node: Node, builder: PlanBuilder) -> None:
    """Lower a normalisation of each channel of each image."""
    source = _operand(node, 0, builder)
    _lower_groups(node, builder, source, source.shape[1])


@kernel("GroupNormalization", refuses=_refuses_channels)
def lower_groups(node: Node, builder: PlanBuilder) -> None:
    """Lower a normalisation of groups of channels; there is a scale for each channel or group."""
    _lower_groups(node, builder, _operand(node, 0, builder), int(node.attributes["num_groups"]))


def _lower_groups(node: Node, builder: PlanBuilder, source: Operand, count: int) -> None:
    made = builder.result(node.outputs[0])
    images, size = source.shape[0], math.prod(source.shape[1:])
    if not made.count:
        return
    if count < 1 or source.shape[1] % count:
        raise builder.contradiction(f"{count} groups do not divide {source.shape[1]} channels")
    groups = RowGroups(images * count, size // count)
    factors = _factors(node, builder)
    scales = factors["scale"].count
    if scales not in (count, source.shape[1]):
        raise builder.contradiction(f"{scales} scales are not for {source.shape[1]} channels")
    seen = images, scales, size // scales
    viewed = {name: builder.view(factor, (scales, 1)) for name, factor in factors.items()}
    _launch(node, builder, source, made, groups, _Spread(seen, viewed), {}, True)


@dataclass(frozen=True)
class _Spread:
    """``scale`` and ``shift`` as they broadcast to a tensor that is seen in a shape."""

    shape: Sequence[int]
    factors: Mapping[str, Operand]

    def code(self) -> IndexCode:
        """Write where each factor of the element ``i`` is."""
        strides = [broadcast_strides(item.shape, self.shape) for item in self.factors.values()]
        return index_code(plan_walk(self.shape, strides), "i", "w")

    def reaches(self) -> list[Reach]:
        """Return what is read of each factor."""
        return [
            box(self.shape, broadcast_strides(item.shape, self.shape), item.dtype)
            for item in self.factors.values()
        ]


def _factors(node: Node, builder: PlanBuilder) -> dict[str, Operand]:
    return {
        name: builder.operand(value)
        for name, value in zip(("scale", "shift"), node.inputs[1:], strict=False)
        if value is not None
    }


def _launch(
    node: Node,
    builder: PlanBuilder,
    source: Operand,
    made: Operand,
    groups: RowGroups,
    spread: _Spread,
    statistics: Mapping[str, Operand],
    has_mean: bool,
) -> None:
    """Launch over rows; ``statistics`` are results by the names of variables."""
    in_blocks = groups.block > 1
    code = IndexCode((), (), ()) if in_blocks else spread.code()
    writes = " ".join(
        C_TYPES[item.dtype].store(name, f"{name}_out", "row") for name, item in statistics.items()
    )
    shared = {
        "memory": C_TYPES[made.dtype].memory,
        "rows": groups.parameters,
        "parameters": _parameters(spread.factors, statistics, code),
        "start": groups.start,
        "statistics": f"if ({groups.writes}) {{ {writes} }}" if writes else "",
    }
    if in_blocks:
        text = _blocks_text(groups, made.dtype, spread.factors, shared, has_mean)
    else:
        text = _elements_text(groups, made.dtype, spread.factors, code, shared, has_mean)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    arguments: list[LaunchArgument] = [source, made, groups.rows, groups.length, epsilon]
    arguments += [*spread.factors.values(), *statistics.values()]
    arguments += [number for _, number in code.parameters]
    count = groups.rows * groups.length
    if not source.shape == made.shape or not count == made.count == math.prod(spread.shape):
        raise builder.contradiction(f"{list(source.shape)} does not become {list(made.shape)}")
    reaches = [*[elements(count, made.dtype)] * 2, *spread.reaches()]
    reaches += [elements(groups.rows, item.dtype) for item in statistics.values()]
    builder.launch(KernelSource.of("normalize", text), arguments, *groups.sizes, reaches)


def _elements_text(
    groups: RowGroups,
    dtype: DType,
    factors: Mapping[str, Operand],
    code: IndexCode,
    shared: Mapping[str, str],
    has_mean: bool,
) -> str:
    """Write the kernel whose work-items take one element at a time."""
    kind = C_TYPES[dtype]
    folds, value = _statistics_code(groups, kind, has_mean)
    for (name, factor), place in zip(factors.items(), code.expressions, strict=True):
        value = f"{value} {_SIGNS[name]} {C_TYPES[factor.dtype].load(name, place)}"
    return _ROWS_TEXT.format(
        folds=folds,
        loop=groups.loop,
        lines=" ".join(code.lines),
        store=kind.store(value, "y", "i"),
        **shared,
    )


def _blocks_text(
    groups: RowGroups,
    dtype: DType,
    factors: Mapping[str, Operand],
    shared: Mapping[str, str],
    has_mean: bool,
) -> str:
    """Write the kernel whose work-items read blocks once, as words, and keep them."""
    words, places = ElementWords(dtype, groups.block), groups.blocks
    arrays = [f"x{number}" for number in range(len(places))]
    mean, folds = "", ""
    if has_mean:
        summed = " ".join(words.each(f"total += {array}[j];") for array in arrays)
        mean = " - mean"
        folds = (
            f"float total = 0.0f; {summed}\n{groups.joined('total', '{a} + {b}')}"
            "    const float mean = total / length;\n    "
        )
    squared = " ".join(
        words.each(f"{{ const float v = {array}[j]{mean}; squares += v * v; }}") for array in arrays
    )
    folds += f"float squares = 0.0f; {squared}\n{groups.joined('squares', '{a} + {b}')}"
    stores = []
    for array, place in zip(arrays, places, strict=True):
        value = f"({array}[j]{mean}) * factor"
        reads = []
        for name, factor in factors.items():
            read = f"{name}_{array}"
            reads.append(ElementWords(factor.dtype, groups.block).load(read, name, place))
            value = f"{value} {_SIGNS[name]} {read}[j]"
        scaled = words.each(f"{array}[j] = {value};")
        written = words.store(array, "y", f"first + {place}")
        stores.append(f"{{ {' '.join(reads)} {scaled} {written} }}")
    return _BLOCK_ROWS_TEXT.format(
        blocks=groups.length // groups.block,
        loads=" ".join(
            words.load(array, "x", f"first + {place}")
            for array, place in zip(arrays, places, strict=True)
        ),
        folds=folds,
        stores="\n    ".join(stores),
        **shared,
    )


def _is_row(shape: Sequence[int], row: Sequence[int]) -> bool:
    """True if a factor has one number for each element of a row, and the same for all. Pure."""
    return _without_leading_ones(shape) == _without_leading_ones(row)


def _without_leading_ones(shape: Sequence[int]) -> list[int]:
    return [*itertools.dropwhile(lambda length: length == 1, shape)]


def _statistics_code(groups: RowGroups, kind: CType, has_mean: bool) -> tuple[str, str]:
    """Write what sums up a row, and the value of its element ``i`` before it is scaled."""
    element = f"const float v = {kind.load('x', 'row * length + k')};"
    if not has_mean:
        squares = groups.fold("squares", element, "v * v", "0.0f", "{a} + {b}")
        return squares, f"{kind.load('x', 'i')} * factor"
    total = groups.fold("total", element, "v", "0.0f", "{a} + {b}")
    mean = "const float mean = total / length;"
    squares = groups.fold("squares", element, "(v - mean) * (v - mean)", "0.0f", "{a} + {b}")
    return f"{total}    {mean}\n    {squares}", f"({kind.load('x', 'i')} - mean) * factor"


def _parameters(
    factors: Mapping[str, Operand], statistics: Mapping[str, Operand], code: IndexCode
) -> str:
    texts = [
        f"__global const {C_TYPES[item.dtype].memory} *{name}" for name, item in factors.items()
    ]
    texts += [
        f"__global {C_TYPES[item.dtype].memory} *{name}_out" for name, item in statistics.items()
    ]
    texts += [f"const int {name}" for name, _ in code.parameters]
    return "".join(f", {text}" for text in texts)


@kernel("BatchNormalization", refuses=_refuses_batches)
def lower_batches(node: Node, builder: PlanBuilder) -> None:
    """Lower what was not folded into a neighbour: elementwise, with a number for each channel."""
    source = _operand(node, 0, builder)
    operands: dict[str, Operand | float] = {"i0": source}
    for index in range(1, 5):
        factor = _operand(node, index, builder)
        if factor.shape != source.shape[1:2]:
            raise builder.contradiction(
                f"{list(factor.shape)} is not a number for each channel of {list(source.shape)}"
            )
        operands[f"i{index}"] = factor.viewed((factor.count, *[1] * (len(source.shape) - 2)))
    operands["i5"] = float(node.attributes.get("epsilon", 1e-5))
    steps = [
        FusedStep(op, names, DType.FLOAT32)
        for op, names in (
            ("Add", ("i4", "i5")),
            ("Sqrt", ("s0",)),
            ("Sub", ("i0", "i3")),
            ("Div", ("s2", "s1")),
            ("Mul", ("s3", "i1")),
            ("Add", ("s4", "i2")),
        )
    ]
    fused_launch(builder, steps, operands, builder.result(node.outputs[0]))


@kernel("LRN", refuses=_refuses_channels)
def lower_lrn(node: Node, builder: PlanBuilder) -> None:
    """Lower a division by a power of the squares of neighbouring channels."""
    source, made = _operand(node, 0, builder), builder.result(node.outputs[0])
    size, kind = int(node.attributes["size"]), C_TYPES[made.dtype]
    if size < 1 or source.shape != made.shape:
        raise builder.contradiction(f"{size} channels of {list(source.shape)} have no norm")
    number = {
        name: float(node.attributes.get(name, default))
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    }
    text = _LRN_TEXT.format(
        memory=kind.memory,
        near=kind.load("x", "i + (o - c) * inner"),
        store=kind.store(f"{kind.load('x', 'i')} / pow(bias + alpha * sum, beta)", "y", "i"),
    )
    arguments: list[LaunchArgument] = [source, made, made.count, made.shape[1]]
    arguments += [math.prod(made.shape[2:]), (size - 1) // 2, size // 2]
    arguments += [number["alpha"] / size, number["beta"], number["bias"]]
    reaches = [elements(made.count, made.dtype)] * 2
    builder.launch(
        KernelSource.of("lrn", text), arguments, *line_groups(builder, made.count), reaches
    )


def _operand(node: Node, index: int, builder: PlanBuilder) -> Operand:
    value: Value | None = node.inputs[index]
    assert value is not None
    return builder.operand(value)
