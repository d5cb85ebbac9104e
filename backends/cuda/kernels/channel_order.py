"""Maps with channels first as maps with channels last, and elementwise work on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.graph import DType, Node
from ...accelerator.elementwise.c_types import C_TYPES
from ...accelerator.elementwise.fused_launch import line_groups
from ...accelerator.elementwise.fused_source import FusedCode, fused_code
from ...accelerator.elementwise.fused_step import parse_steps
from ...accelerator.launching.kernel_source import KernelSource
from ...accelerator.launching.reach import elements
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from ..domain import CUDA_DOMAIN
from .channel_words import channel_words
from .registry import kernel
from .transposition import has_room_for_tiles, launch_transposition, matrices_of

_MOVED_AS = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}
"""By size, what stands for types that nothing is computed in."""

_TEXT = """
__kernel void $name({parameters}__global {memory} *y, const int count, const int pixels,
                    const int channels, const int blocks) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int block = i % blocks, pixel = i / blocks;
    const int first = pixel / pixels * channels * pixels + pixel % pixels;
    {start}
    {steps}
    {store}
}}
"""


@kernel("ToChannelsLast", domain=CUDA_DOMAIN, dtypes=None)
def lower_to_channels_last(node: Node, builder: PlanBuilder) -> None:
    """Lower the way to channels last, with ``channels``, those that are not given full of zeros.

    The operands of its ``steps`` broadcast to ``shape``, which is that with channels first; without
    steps the first is what is turned.
    """
    shape = [int(length) for length in node.attributes["shape"]]
    steps, made = parse_steps(node), builder.result(node.outputs[0])
    operands = {
        f"i{index}": builder.scalar_or_operand(value)
        for index, value in enumerate(node.inputs)
        if value is not None
    }
    dtype, source = made.dtype, operands["i0"]
    is_same = isinstance(source, Operand) and source.dtype is made.dtype
    if not steps and is_same and made.shape[-1] == shape[1]:
        assert isinstance(source, Operand)
        matrices = matrices_of(shape, (0, *range(2, len(shape)), 1))
        if matrices is not None and has_room_for_tiles(builder):
            launch_transposition(builder, source, made, matrices)
            return
    if steps:
        code = fused_code(steps, operands, shape, "at")
    else:
        dtype = dtype if dtype in C_TYPES else _MOVED_AS[dtype.item_bytes]
        code = _as_it_is(source, dtype, shape)
    words = channel_words(dtype, made.shape[-1])
    step = (
        f"const int c = block * {words.count} + j; if (c < channels) {{ "
        f"const int at = first + c * pixels; {' '.join(code.lines)} made[j] = {code.result}; }}"
    )
    text = _TEXT.format(
        parameters="".join(f"{parameter}, " for parameter in code.parameters),
        memory=C_TYPES[dtype].memory,
        start=words.filled("made", "0"),
        steps=words.each(step),
        store=words.store("made", "y", "i"),
    )
    blocks = made.shape[-1] // words.count
    count = made.count // words.count
    if made.shape[:-1] != (shape[0], *shape[2:]) or made.shape[-1] < shape[1]:
        raise builder.contradiction(f"{shape} does not become {list(made.shape)}")
    builder.launch(
        KernelSource.of("to_last", text),
        [*code.arguments, made, count, math.prod(shape[2:]), shape[1], blocks],
        *line_groups(builder, count),
        [*code.reaches, elements(count * words.count, made.dtype)],
    )


def _as_it_is(source: Operand | float, dtype: DType, shape: Sequence[int]) -> FusedCode:
    """Write the reading of an element that nothing is done to, but to hold it in another type."""
    assert isinstance(source, Operand)
    kind = C_TYPES.get(source.dtype, C_TYPES[dtype])
    parameter = f"__global const {kind.memory} *x"
    reach = elements(math.prod(shape), source.dtype)
    return FusedCode((), kind.load("x", "at"), (parameter,), (source,), (reach,))
