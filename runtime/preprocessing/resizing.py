"""The step that resizes a picture, with OpenVINO's convention of coordinates.

Pixels are areas whose middles lie at a half (``half_pixel``), the nearest of two that are equally
near is the lower one, and cubic interpolation has the coefficient -0.75. The two of Pillow read as
many pixels as one of the result covers (antialiasing), with the coefficient -0.5. Integers are
interpolated in f32, rounded, and kept in the bounds of their type.
"""

from __future__ import annotations

import enum

from ...errors import TensorError, nearest
from ..graph import DType
from .arithmetic import rounded
from .state import State, integers

__all__ = ["ResizeAlgorithm", "resize", "resize_algorithm_of"]


class ResizeAlgorithm(enum.Enum):
    """How pixels are joined, by OpenVINO's names; the value is the short one."""

    RESIZE_LINEAR = "linear"
    RESIZE_CUBIC = "cubic"
    RESIZE_NEAREST = "nearest"
    RESIZE_BILINEAR_PILLOW = "bilinear_pillow"
    RESIZE_BICUBIC_PILLOW = "bicubic_pillow"


def resize_algorithm_of(given: str | ResizeAlgorithm) -> ResizeAlgorithm:
    """Return the algorithm that is meant: ``linear`` or RESIZE_LINEAR, in any case."""
    if isinstance(given, ResizeAlgorithm):
        return given
    name = given.lower().removeprefix("resize_") if isinstance(given, str) else ""
    known = [algorithm.value for algorithm in ResizeAlgorithm]
    if name not in known:
        raise TensorError(
            f"{given!r} is no resize algorithm{nearest(name, known)}; there are {known}"
        )
    return ResizeAlgorithm(name)


def resize(
    state: State, algorithm: ResizeAlgorithm, height: int | None, width: int | None
) -> State:
    """Change height and width, to the model's where none are given."""
    axes = [state.axis("H"), state.axis("W")]
    wanted = [
        state.target.length(name) if given is None else given
        for name, given in (("H", height), ("W", width))
    ]
    if [state.shape[axis] for axis in axes] == wanted:
        return state
    name = algorithm.value
    is_pillow = name.endswith("_pillow")
    is_rounded = not state.dtype.is_floating and algorithm is not ResizeAlgorithm.RESIZE_NEAREST
    value = state.value
    if is_rounded:
        value = state.node("Cast", value, to=DType.FLOAT32.value)
    made = state.node(
        "Resize",
        value,
        None,
        None,
        integers(*wanted),
        axes=axes,
        mode="linear" if "linear" in name else "cubic" if "cubic" in name else "nearest",
        coordinate_transformation_mode="half_pixel",
        nearest_mode="round_prefer_floor",
        cubic_coeff_a=-0.5 if is_pillow else -0.75,
        antialias=int(is_pillow),
        exclude_outside=int(is_pillow),
    )
    return state.of(rounded(state, made, state.dtype) if is_rounded else made)
