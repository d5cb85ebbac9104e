"""Models of a few nodes on OPENCL, compared with REFERENCE."""

from __future__ import annotations

from functools import partial

from aioinfer.errors import AioInferError
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
    "F16_BOUND",
    "F32_BOUND",
    "Arrays",
    "assert_close",
    "assert_same_as_reference",
    "missing_reason",
    "model_of",
    "operator",
    "run",
]

F16_BOUND = 4e-3
"""Largest error over largest value; float16 has 11 bits of mantissa."""

assert_same_as_reference = partial(assert_same_on, "OPENCL")


def missing_reason() -> str | None:
    """Say why there is no OPENCL device here, or None."""
    from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver

    try:
        PyOpenClDriver().find_devices()
    except AioInferError as error:
        return str(error)
    return None
