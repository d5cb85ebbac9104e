"""Kernels over windows of maps with channels last: a work-item for a block of channels of a place.

Neighbouring work-items are neighbouring channels, so that they read neighbouring words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....runtime.lowering.window import Window
from ...accelerator.elementwise.c_types import C_TYPES
from ...accelerator.elementwise.element_words import ElementWords
from ...accelerator.kernels.window_code import lengths_of, parameters_of, place_lines
from ...accelerator.launching.kernel_source import KernelSource
from ...accelerator.launching.reach import Reach, whole
from ...accelerator.operand import Operand
from ...accelerator.plan import LaunchArgument
from ...accelerator.plan_builder import PlanBuilder

__all__ = ["WindowTexts", "launch_windows"]

_GROUP = 128

_TEXT = """
__kernel void $name({pointers}, const int count, const int blocks{parameters}) {{
    const int i = get_global_id(0), image = get_global_id(1);
    if (i >= count) return;
    const int block = i % blocks;
    int rest = i / blocks;
    {places}
    {start}
    {loops}
        {step}
    {ends}
    {finish}
    {store}
}}
"""


@dataclass(frozen=True)
class WindowTexts:
    """What a kernel does before its loops over a window, inside of them, and behind, in kernel C.

    ``start`` declares the array ``made``, the block of channels of the result, which is number
    ``image * count + i``. The loops name places like ``window_code``, one for each axis.
    """

    start: str
    loops: str
    step: str
    finish: str


def launch_windows(
    builder: PlanBuilder,
    label: str,
    sources: Sequence[tuple[str, Operand]],
    made: Operand,
    window: Window,
    words: ElementWords,
    texts: WindowTexts,
    numbers: Sequence[tuple[str, int]] = (),
    parameters: Sequence[str] = (),
    arguments: Sequence[LaunchArgument] = (),
    reaches: Sequence[Reach] = (),
) -> None:
    """Launch a kernel whose result is ``y``; its ``sources`` by name, the image first.

    Behind the lengths of ``window_code`` it takes ``numbers``, int arguments by name, and what
    ``parameters`` declare. ``reaches`` are those of the operands among the ``arguments``; of its
    sources it touches all.
    """
    (_, image), memory = sources[0], C_TYPES[made.dtype].memory
    numbers = [
        *lengths_of(image.shape[1:-1], made.shape[1:-1], window.pads_begin),
        *numbers,
    ]
    pointers = [f"__global const {memory} *{name}" for name, _ in sources]
    text = _TEXT.format(
        pointers=", ".join([*pointers, f"__global {memory} *y"]),
        parameters=parameters_of(numbers) + "".join(f", {item}" for item in parameters),
        places=place_lines(len(window.kernel)),
        start=texts.start,
        loops=texts.loops,
        step=texts.step,
        ends="}" * len(window.kernel),
        finish=texts.finish,
        store=words.store("made", "y", "image * count + i"),
    )
    blocks = made.shape[-1] // words.count
    count = math.prod(made.shape[1:-1]) * blocks
    given: list[LaunchArgument] = [*(source for _, source in sources), made, count, blocks]
    given += [*(number for _, number in numbers), *arguments]
    group = min(_GROUP, builder.work_group_size)
    if image.shape[0] != made.shape[0]:
        raise builder.contradiction(f"{list(image.shape)} does not become {list(made.shape)}")
    touched = [*[whole(source) for _, source in sources], whole(made), *reaches]
    source = KernelSource.of(label, text)
    builder.launch(source, given, (count, made.shape[0]), (group, 1), touched)
