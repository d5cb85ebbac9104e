"""The words that the native kernels for int8 are given, by their names. Pure.

Behind them come the element type of each other operand, and four words for each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..native.int8_sizes import FLAT

__all__ = ["WORD_COUNT", "Int8Words", "flat_line_bytes"]

Pair = tuple[int, int]

WORD_COUNT = 26
"""Of those that have names; a pair is two."""


class Int8Words(NamedTuple):
    """What a product is made of, in the order of ``struct product`` in native/int8/product.h.

    Lengths of the source, of the result and of the window are those of two axes; ``pad`` is the
    stored number that stands for 0; ``channels`` and ``columns`` are those of one group; types are
    numbered as ONNX does; ``is_mixed``: rows of data hold their numbers in both sizes.
    """

    images: int
    height: int
    width: int
    made_height: int
    made_width: int
    window: Pair
    strides: Pair
    dilations: Pair
    pads: Pair
    pad: int
    groups: int
    channels: int
    columns: int
    source_type: int
    result_type: int
    is_mixed: int
    chunk_count: int
    scale_count: int
    block_rows: int
    parts: int
    other_count: int
    step_count: int

    def flat(self) -> Iterator[int]:
        """Give all words, one after another."""
        for word in self:
            yield from word if isinstance(word, tuple) else (word,)

    @classmethod
    def read(cls, parameters: Sequence[int]) -> Int8Words:
        """Read the first parameters of a kernel; ValueError if they are too few."""
        if len(parameters) < WORD_COUNT:
            raise ValueError(f"there are {len(parameters)} parameters, and {WORD_COUNT} are needed")
        pairs = [(parameters[index], parameters[index + 1]) for index in range(5, 13, 2)]
        return cls._make([*parameters[:5], *pairs, *parameters[13:WORD_COUNT]])


def flat_line_bytes(words: Int8Words) -> int:
    """Return the bytes of the copies of lines that a part of int8_taps holds at once."""
    span = (words.window[0] - 1) * words.dilations[0] + 1
    places = words.made_width + (words.window[1] - 1) * words.dilations[1] // words.strides[1]
    numbers = words.strides[1] * places * words.groups
    return span * (-(-numbers // FLAT) * FLAT + FLAT)
