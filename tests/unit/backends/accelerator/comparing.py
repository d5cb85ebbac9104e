"""Models of a few nodes on OPENCL, compared with REFERENCE."""

from __future__ import annotations

from functools import partial

from unit.backends.comparing import (
    F32_BOUND,
    Arrays,
    assert_close,
    assert_same_on,
    model_of,
    operator,
    run,
)

__all__ = [
    "BF16_BOUND",
    "F16_BOUND",
    "F32_BOUND",
    "Arrays",
    "assert_close",
    "assert_same_as_reference",
    "model_of",
    "operator",
    "run",
]

F16_BOUND = 4e-3
"""Largest error over largest value; float16 has 11 bits of mantissa."""
BF16_BOUND = 3e-2
"""Bfloat16 has 8 of them."""

assert_same_as_reference = partial(assert_same_on, "OPENCL")
