"""What follows a matmul or a convolution in its own kernel: bias, residual sum, activations.

A fused node has its extra operands after data, weights and bias, and the attribute ``steps``, which
begin from ``acc``, what the kernel has summed up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....runtime.graph import Node
from ..elementwise.c_types import C_TYPES
from ..elementwise.fused_source import fused_code
from ..elementwise.fused_step import FusedStep, joined_steps, parse_steps
from ..launching.reach import Reach
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder

__all__ = ["EPILOGUE_START", "EpilogueCode", "epilogue_code", "extra_operands"]

EPILOGUE_START = 3
"""The index of a fused node's first extra operand; a bias that is not given is None."""


class EpilogueCode:
    """``text`` turns the accumulator into an element of the result and stores it.

    ``parameters`` begins with a comma where there are any; ``arguments`` are passed for them, and
    ``reaches`` what is touched of the operands among those.
    """

    def __init__(
        self,
        text: str,
        parameters: str,
        arguments: Sequence[LaunchArgument],
        reaches: Sequence[Reach],
    ) -> None:
        self.text, self.parameters = text, parameters
        self.arguments, self.reaches = tuple(arguments), tuple(reaches)


def epilogue_code(
    node: Node,
    builder: PlanBuilder,
    result: Operand,
    accumulator: str,
    index: str,
    first: Sequence[FusedStep] = (),
    operands: Mapping[str, Operand | float] | None = None,
) -> EpilogueCode:
    """Write the end of a kernel for the element ``index`` of ``y``, which is ``result``.

    ``first`` are steps of the kernel's own, such as its bias, before those of the node;
    ``operands`` are what they read beyond the node's extra operands, by names like ``i2``.
    """
    given = {**(operands or {}), **extra_operands(node, builder)}
    steps = joined_steps(first, parse_steps(node))
    code = fused_code(steps, given, result.shape, index, accumulator)
    lines = [*code.lines, C_TYPES[result.dtype].store(code.result, "y", index)]
    parameters = "".join(f", {parameter}" for parameter in code.parameters)
    return EpilogueCode(" ".join(lines), parameters, code.arguments, code.reaches)


def extra_operands(node: Node, builder: PlanBuilder) -> dict[str, Operand | float]:
    """Return what the steps of a fused node read beside the sum, by their names in the steps."""
    return {
        f"i{number}": builder.scalar_or_operand(value)
        for number, value in enumerate(node.inputs[EPILOGUE_START:], EPILOGUE_START)
        if value is not None
    }
