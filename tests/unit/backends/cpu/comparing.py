"""Models of a few nodes on CPU, compared with REFERENCE."""

from __future__ import annotations

from functools import partial

from aioinfer.errors import DeviceError
from unit.backends.comparing import F32_BOUND, Arrays, assert_same_on, model_of, run

__all__ = [
    "BF16_BOUND",
    "F32_BOUND",
    "Arrays",
    "assert_same_as_reference",
    "missing_reason",
    "model_of",
    "run",
]

BF16_BOUND = 3e-2
"""Largest error over largest value; bfloat16 has 8 bits of mantissa."""

assert_same_as_reference = partial(assert_same_on, "CPU")


def missing_reason() -> str | None:
    """Say why there is no CPU device here, or None."""
    from aioinfer.backends.cpu.onednn.bindings import open_engine

    try:
        open_engine()
    except DeviceError as error:
        return str(error)
    return None
