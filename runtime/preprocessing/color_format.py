"""Colour formats, and in which tensors a picture of each comes. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import TensorError
from ..graph import Dim, Shape
from .layout import Layout

__all__ = ["PLANES", "ColorFormat", "Plane"]


class ColorFormat(enum.Enum):
    """What a picture's channels are, by OpenVINO's names; the value is what ``repr`` shows."""

    UNDEFINED = "Unknown"
    NV12_SINGLE_PLANE = "NV12 (single plane)"
    NV12_TWO_PLANES = "NV12 (multi-plane)"
    I420_SINGLE_PLANE = "I420 (single plane)"
    I420_THREE_PLANES = "I420 (multi-plane)"
    RGB = "RGB"
    BGR = "BGR"
    GRAY = "GRAY"
    RGBX = "RGBX"
    BGRX = "BGRX"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Plane:
    """One tensor of a picture: how many channels it has, and its size in halves of the picture's.

    ``suffix`` ends its name where there are several.
    """

    suffix: str
    channel_count: int
    half_heights: int = 2
    half_widths: int = 2

    def shape(self, picture: Shape, layout: Layout) -> Shape:
        """Return the plane's shape; raises TensorError for a picture that has no such planes."""
        made = list(picture)
        made[layout.axis("C", len(picture))] = self.channel_count
        if (self.half_heights, self.half_widths) != (2, 2):
            for name, halves in (("H", self.half_heights), ("W", self.half_widths)):
                axis = layout.axis(name, len(picture))
                made[axis] = _part(made[axis], halves, name)
        return tuple(made)


def _part(length: Dim, halves: int, name: str) -> Dim:
    if halves == 2:
        return length
    if not isinstance(length, int):
        return None
    if length % 2:
        raise TensorError(
            f"{name} is {length}, and two by two pixels share a colour in NV12 and I420; give an "
            f"even length with tensor().set_spatial_static_shape(height, width)"
        )
    return length * halves // 2


PLANES: Mapping[ColorFormat, tuple[Plane, ...]] = {
    ColorFormat.NV12_SINGLE_PLANE: (Plane("", 1, 3),),
    ColorFormat.NV12_TWO_PLANES: (Plane("Y", 1), Plane("UV", 2, 1, 1)),
    ColorFormat.I420_SINGLE_PLANE: (Plane("", 1, 3),),
    ColorFormat.I420_THREE_PLANES: (Plane("Y", 1), Plane("U", 1, 1, 1), Plane("V", 1, 1, 1)),
    ColorFormat.RGB: (Plane("", 3),),
    ColorFormat.BGR: (Plane("", 3),),
    ColorFormat.GRAY: (Plane("", 1),),
    ColorFormat.RGBX: (Plane("", 4),),
    ColorFormat.BGRX: (Plane("", 4),),
}
"""The tensors of each format; what is undefined comes in one, of whichever shape."""
