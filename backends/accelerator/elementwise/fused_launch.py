"""One kernel for a fused group: a work-item computes an element of the result, or a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..launching.kernel_source import KernelSource
from ..launching.reach import Reach, whole
from ..operand import Operand
from ..plan import LaunchArgument
from .c_types import C_TYPES
from .element_words import ElementWords
from .fused_blocks import block_code, block_length
from .fused_step import FusedStep

__all__ = ["Launcher", "fused_launch", "line_groups"]

_GROUP = 64
_LARGE_GROUP = 256
_MANY_GROUPS = 1024
"""Large groups from here on: fewer would leave a part of a GPU idle."""


class Launcher(Protocol):
    """What launches kernels: a plan's builder."""

    @property
    def work_group_size(self) -> int:
        """The most work-items that a group may have."""

    @property
    def moves_words(self) -> bool:
        """True if a work-item should move several elements as one word."""

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
    group = _LARGE_GROUP if count >= _LARGE_GROUP * _MANY_GROUPS else _GROUP
    return (count,), (min(group, builder.work_group_size),)


def fused_launch(
    builder: Launcher,
    steps: Sequence[FusedStep],
    operands: Mapping[str, Operand | float],
    result: Operand,
) -> None:
    """Launch steps whose operands broadcast to the result."""
    length = block_length(operands, result) if builder.moves_words else 1
    code = block_code(steps, operands, result, length)
    memory = C_TYPES[result.dtype].memory
    parameters = [*code.parameters, f"__global {memory} *y", "const int blocks"]
    lines = [
        "const int block = get_global_id(0);",
        "if (block >= blocks) return;",
        f"const int start = block * {length};",
        *code.lines,
        ElementWords(result.dtype, length).store(code.result, "y", "block"),
    ]
    text = f"__kernel void $name({', '.join(parameters)}) {{\n"
    text += "".join(f"    {line}\n" for line in lines) + "}\n"
    source, blocks = KernelSource.of("fused", text), result.count // length
    arguments, reaches = [*code.arguments, result, blocks], [*code.reaches, whole(result)]
    builder.launch(source, arguments, *line_groups(builder, blocks), reaches)
