"""Steps of a fused group in kernel C: what a kernel computes for one element of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....runtime.graph import DType
from ..launching.reach import Reach, box
from ..operand import Operand
from .c_types import C_TYPES
from .elementwise_operators import expression
from .fused_step import NO_OPERAND, FusedStep, operand_names
from .operand_walk import broadcast_strides, index_code, plan_walk

__all__ = ["FusedCode", "fused_code", "step_lines"]


@dataclass(frozen=True)
class FusedCode:
    """Text to put into a kernel, and what the kernel takes for it.

    ``parameters`` are declarations without commas, ``arguments`` what is passed for them, and
    ``reaches`` what is touched of the operands among those.
    """

    lines: tuple[str, ...]
    result: str
    parameters: tuple[str, ...]
    arguments: tuple[Operand | int | float, ...]
    reaches: tuple[Reach, ...]


def fused_code(
    steps: Sequence[FusedStep],
    operands: Mapping[str, Operand | float],
    shape: Sequence[int],
    index: str,
    accumulator: str | None = None,
) -> FusedCode:
    """Write the steps for the element number ``index`` of a result of ``shape``.

    ``operands`` are the inputs by name; a float is passed as a number. They are read in the type
    in which they lie in memory. ``accumulator`` is the C expression of ``acc``, a float.
    """
    names = operand_names(steps)
    tensors = {n: item for n in names if isinstance(item := operands[n], Operand)}
    strides = [broadcast_strides(item.shape, shape) for item in tensors.values()]
    code = index_code(plan_walk(shape, strides), index, "w")
    reaches = [
        box(shape, own, item.dtype) for own, item in zip(strides, tensors.values(), strict=True)
    ]
    types: dict[str, DType] = {}
    texts = {NO_OPERAND: NO_OPERAND, "acc": accumulator or ""}
    parameters: list[str] = []
    arguments: list[Operand | int | float] = []
    lines = list(code.lines)
    for (name, operand), place in zip(tensors.items(), code.expressions, strict=True):
        kind = C_TYPES[operand.dtype]
        parameters.append(f"__global const {kind.memory} *{name}")
        arguments.append(operand)
        lines.append(f"const {kind.register} v{name} = {kind.load(name, place)};")
        texts[name], types[name] = f"v{name}", operand.dtype
    for name in names:
        number = operands[name]
        if not isinstance(number, Operand):
            parameters.append(f"const float {name}")
            arguments.append(number)
            texts[name] = name
    for parameter, length in code.parameters:
        parameters.append(f"const int {parameter}")
        arguments.append(length)
    computed, last = step_lines(steps, texts, types)
    lines += computed
    result = last or accumulator or ""
    return FusedCode(tuple(lines), result, tuple(parameters), tuple(arguments), tuple(reaches))


def step_lines(
    steps: Sequence[FusedStep], texts: Mapping[str, str], types: Mapping[str, DType]
) -> tuple[list[str], str]:
    """Write the steps alone, and name what they come to; "" for no steps.

    ``texts`` are the C expressions of their operands, ``types`` those that these are of; what has
    none is a float.
    """
    texts, types, lines = dict(texts), dict(types), []
    for number, step in enumerate(steps):
        inputs = [texts[name] for name in step.operands]
        made = expression(step, inputs, types.get(step.operands[0], DType.FLOAT32))
        lines.append(f"const {C_TYPES[step.dtype].register} s{number} = {made};")
        texts[f"s{number}"], types[f"s{number}"] = f"s{number}", step.dtype
    return lines, f"s{len(steps) - 1}" if steps else ""
