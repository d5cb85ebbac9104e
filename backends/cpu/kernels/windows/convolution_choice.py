"""Which of oneDNN's convolutions to take where its own first choice is not the fastest. Pure.

oneDNN offers implementations in a fixed order. The rules here were measured on processors with
512-bit vectors; where a name is not offered, oneDNN's choice stands.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

from .....executors import is_shortage

__all__ = [
    "ConvolutionShape",
    "has_split_vectors",
    "is_slow",
    "misapplies_epilogues",
    "wanted_implementation",
]

CPU_FACTS = Path("/proc/cpuinfo")
"""Linux's description of the processor."""

_VECTOR = 16
"""Floats in a vector of 512 bits."""

_FEW_CHANNELS, _SMALL_WINDOW = 8, 9
"""A network's first convolution reads colours, which no blocked kernel takes."""


class ConvolutionShape(NamedTuple):
    """What the choice depends on; channels are those of one group."""

    groups: int
    input_channels: int
    output_channels: int
    kernel: tuple[int, ...]
    is_float32: bool

    @property
    def is_depthwise(self) -> bool:
        """True if each channel is convolved alone."""
        return self.groups > 1 and self.input_channels == self.output_channels == 1

    @property
    def is_pointwise(self) -> bool:
        """True if the window is a single element."""
        return all(length == 1 for length in self.kernel)


def wanted_implementation(shape: ConvolutionShape, splits_vectors: bool) -> str:
    """Return the implementation to look for, or how its name begins; empty for oneDNN's first.

    ``splits_vectors``: the processor computes 512 bits as two halves, so that narrow vectors lose
    nothing, and waste less where the output channels do not fill a wide one.
    """
    if shape.is_depthwise:
        return "jit_dw:avx512_core"
    if not splits_vectors or not shape.is_float32 or shape.groups > 1:
        return ""
    rest = shape.output_channels % _VECTOR
    is_wasteful = 0 < rest <= _VECTOR // 2
    if shape.is_pointwise:
        few = shape.output_channels < 4 * _VECTOR
        return "brgconv_1x1:avx2" if is_wasteful and few else ""
    if is_wasteful and shape.output_channels < _VECTOR:
        return "brgconv:avx2"
    is_first = shape.input_channels < _FEW_CHANNELS and math.prod(shape.kernel) > _SMALL_WINDOW
    return "jit:avx2" if is_first else ""


def is_slow(implementation: str) -> bool:
    """True for what unfolds windows into memory, or is not compiled for the shapes at all."""
    return implementation.startswith(("ref", "gemm", "x64:gemm"))


def misapplies_epilogues(implementation: str) -> bool:
    """True for what may add a bias, or apply post-ops, to each part of a sum.

    Seen of oneDNN 3.2 on AVX2 for strided ConvTranspose, from 48 channels on; which sums it divides
    is not told. What it computes without an epilogue is right.
    """
    return "brgconv_strided" in implementation


@functools.cache
def has_split_vectors() -> bool:
    """True on processors that run 512-bit vectors in halves: AMD's family 25, that is Zen 4."""
    try:
        text = CPU_FACTS.read_text(encoding="utf-8")
    except OSError as error:
        if is_shortage(error):  # no answer to remember
            raise
        return False
    facts = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, fact = line.partition(":")
        facts[key.strip()] = fact.strip()
    return facts.get("vendor_id") == "AuthenticAMD" and facts.get("cpu family") == "25"
