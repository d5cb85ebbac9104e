"""Pools of maps with channels last: a work-item for a block of channels of each result."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.graph import Node
from ....runtime.lowering.window import Window
from ...accelerator.elementwise.c_types import extremes
from ...accelerator.elementwise.element_words import ElementWords
from ...accelerator.kernels.pooling import read_pool
from ...accelerator.kernels.window_code import end_lengths, nested_index, padded_count, window_loops
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from ..domain import CUDA_DOMAIN
from .channel_words import channel_words
from .registry import kernel
from .window_launch import WindowTexts, launch_windows

_PLACES = slice(1, -1)


@kernel("MaxPool", domain=CUDA_DOMAIN)
def lower_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a maximum of each window; NaN wins."""
    source, made, window = read_pool(node, builder, _PLACES)
    words = channel_words(made.dtype, made.shape[-1])
    start = words.filled("made", extremes(made.dtype)[0])
    update = words.each("made[j] = greatest(made[j], v[j]);")
    _launch(builder, source, made, window, words, (start, update, ""))


@kernel("AveragePool", domain=CUDA_DOMAIN)
def lower_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average of what a window sees of the input, or of that and its padding."""
    source, made, window = read_pool(node, builder, _PLACES)
    words = channel_words(made.dtype, made.shape[-1])
    start, update = words.filled("made", "0.0f"), words.each("made[j] += v[j];")
    finish = words.each("made[j] /= seen;")
    if not node.attributes.get("count_include_pad", 0):
        texts = f"{start} float seen = 0.0f;", f"{update} seen += 1.0f;", finish
        _launch(builder, source, made, window, words, texts)
        return
    texts = start, update, f"const float seen = {padded_count(window)}; {finish}"
    _launch(builder, source, made, window, words, texts, end_lengths(window))


def _launch(
    builder: PlanBuilder,
    source: Operand,
    made: Operand,
    window: Window,
    words: ElementWords,
    texts: tuple[str, str, str],
    numbers: Sequence[tuple[str, int]] = (),
) -> None:
    """Launch a pool, whose ``texts`` come before the loops, inside of them, and behind.

    They make the array ``made`` of what is seen, ``v``. ``numbers`` are int arguments.
    """
    if source.shape[-1] != made.shape[-1]:
        raise builder.contradiction(f"{list(source.shape)} does not become {list(made.shape)}")
    start, update, finish = texts
    place = nested_index("image", range(len(window.kernel)))
    load = words.load("v", "x", f"{place} * blocks + block")
    whole = WindowTexts(start, window_loops(window), f"{load} {update}", finish)
    launch_windows(builder, "pool_last", [("x", source)], made, window, words, whole, numbers)
