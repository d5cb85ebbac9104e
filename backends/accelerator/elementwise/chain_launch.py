"""One kernel for a chain: each work-item computes one element of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..launching.kernel_source import KernelSource
from ..launching.reach import Reach, whole
from ..operand import Operand
from ..plan import LaunchArgument
from .c_types import C_TYPES
from .chain import ChainStep
from .chain_source import chain_code

__all__ = ["Launcher", "chain_launch", "line_groups"]

_GROUP = 64


class Launcher(Protocol):
    """What launches kernels: a plan's builder."""

    @property
    def work_group_size(self) -> int:
        """The most work-items that a group may have."""

    def launch(
        self,
        source: KernelSource,
        arguments: Sequence[LaunchArgument],
        global_size: Sequence[int],
        local_size: Sequence[int],
        reaches: Sequence[Reach],
    ) -> None:
        """Note a kernel to run after those noted before."""


def line_groups(builder: Launcher, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the global and local size of a kernel with a work-item for each of ``count``."""
    return (count,), (min(_GROUP, builder.work_group_size),)


def chain_launch(
    builder: Launcher,
    steps: Sequence[ChainStep],
    operands: Mapping[str, Operand | float],
    result: Operand,
) -> None:
    """Launch steps whose operands broadcast to the result."""
    code = chain_code(steps, operands, result.shape, "i")
    kind = C_TYPES[result.dtype]
    parameters = [*code.parameters, f"__global {kind.memory} *y", "const int count"]
    lines = [*code.lines, kind.store(code.result, "y", "i")]
    text = (
        f"__kernel void $name({', '.join(parameters)}) {{\n"
        "    const int i = get_global_id(0);\n"
        "    if (i >= count) return;\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    )
    source = KernelSource.of("chain", text)
    arguments = [*code.arguments, result, result.count]
    reaches = [*code.reaches, whole(result)]
    builder.launch(source, arguments, *line_groups(builder, result.count), reaches)
