"""Steps of a fused group for a block of neighbouring elements, which move as words.

A work-item that moves one element at a time leaves a GPU's memory idle, since few bytes are on
their way. So it computes a block: operands that lie like the result are read as a word, and so are
rows that are broadcast, if a block never leaves one. A single number for the whole block is read
once. What is read at other strides is read element by element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..launching.reach import box
from ..operand import Operand
from .c_types import C_TYPES
from .element_words import WORD_BYTES, ElementWords
from .fused_source import FusedCode, step_lines
from .fused_step import NO_OPERAND, FusedStep, operand_names
from .operand_walk import broadcast_strides, index_code, plan_walk

__all__ = ["block_code", "block_length"]

_LONGEST = 8
"""Elements of a block at most: each step stands in the kernel as often."""


def block_length(operands: Mapping[str, Operand | float], result: Operand) -> int:
    """Choose how many elements a work-item computes: of the widest operand, as fill a word. Pure.

    The result has whole blocks.
    """
    tensors = [item for item in operands.values() if isinstance(item, Operand) and item.count != 1]
    widest = max(item.dtype.item_bytes for item in (result, *tensors))
    length = min(_LONGEST, WORD_BYTES // widest)
    while result.count % length:
        length //= 2
    return length


def block_code(
    steps: Sequence[FusedStep],
    operands: Mapping[str, Operand | float],
    result: Operand,
    length: int,
) -> FusedCode:
    """Write the steps for the block number ``block`` of the result; see ``fused_code``.

    The code's result is the array of the block's elements. The kernel has ``block`` and ``start``,
    the number of the block's first element.
    """
    names, shape = operand_names(steps), result.shape
    tensors = {n: item for n in names if isinstance(item := operands[n], Operand)}
    strides = {n: broadcast_strides(item.shape, shape) for n, item in tensors.items()}
    ways = {n: _way(shape, own, length) for n, own in strides.items()}
    rows = [n for n, way in ways.items() if way != "apart"]
    apart = [n for n, way in ways.items() if way == "apart"]
    at_start = index_code(plan_walk(shape, [strides[n] for n in rows]), "start", "b")
    inside = index_code(plan_walk(shape, [strides[n] for n in apart]), "i", "w")
    places = dict(zip((*rows, *apart), (*at_start.expressions, *inside.expressions), strict=True))
    types = {n: item.dtype for n, item in tensors.items()}
    texts = {NO_OPERAND: NO_OPERAND}
    before, within = list(at_start.lines), ["const int i = start + j;", *inside.lines]
    for name, operand in tensors.items():
        kind, place = C_TYPES[operand.dtype], places[name]
        if ways[name] == "together":
            words = ElementWords(operand.dtype, length)
            index = "block" if place == "start" else f"({place}) / {length}"
            before.append(words.load(f"x{name}", name, index))
            texts[name] = f"x{name}[j]"
            continue
        into = before if ways[name] == "once" else within
        into.append(f"const {kind.register} v{name} = {kind.load(name, place)};")
        texts[name] = f"v{name}"
    numbers = {n: item for n in names if not isinstance(item := operands[n], Operand)}
    texts.update({n: n for n in numbers})
    lines, last = step_lines(steps, texts, types)
    made = C_TYPES[result.dtype].register
    loop = ["#pragma unroll", f"for (int j = 0; j < {length}; j++) {{"]
    body = [*(within if apart else ()), *lines, f"made[j] = {last};", "}"]
    counts = (*at_start.parameters, *inside.parameters)
    return FusedCode(
        (*before, f"{made} made[{length}];", *loop, *body),
        "made",
        (
            *(f"__global const {C_TYPES[t.dtype].memory} *{n}" for n, t in tensors.items()),
            *(f"const float {n}" for n in numbers),
            *(f"const int {n}" for n, _ in counts),
        ),
        (*tensors.values(), *numbers.values(), *(count for _, count in counts)),
        tuple(box(shape, strides[n], item.dtype) for n, item in tensors.items()),
    )


def _way(shape: Sequence[int], strides: tuple[int, ...], length: int) -> str:
    """Return how a block of an operand is read: together, once for all elements, or apart."""
    walk = plan_walk(shape, [strides])
    (own,) = walk.strides
    if not any(own):
        return "once"
    if walk.lengths[-1] % length:
        return "apart"
    if own[-1] == 0:
        return "once"
    is_aligned = own[-1] == 1 and not any(step % length for step in own[:-1])
    return "together" if is_aligned else "apart"
