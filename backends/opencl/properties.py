"""The property of OPENCL beyond the standard ones."""

from __future__ import annotations

from ...runtime.properties.properties import Property
from ...runtime.properties.property_parsers import parse_text

__all__ = ["OPENCL_PLATFORM"]

OPENCL_PLATFORM = Property(
    "OPENCL_PLATFORM",
    parse_text,
    "",
    "A part of the name or the version of the platform to take devices from, such as 'NVIDIA' or "
    "'PoCL 3.1'; '' takes all.",
)
