"""Sampling between the elements of an image, where onnx.reference does it otherwise."""

from __future__ import annotations

import numpy as np

from ...graph import Node
from ..plain_operators import Array, plain

__all__ = ["grid_sample"]

_SHARPNESS = -0.75


def _is_cubic_with_border(node: Node) -> bool:
    mode, padding = (node.attributes.get(name) for name in ("mode", "padding_mode"))
    return mode in ("cubic", "bicubic") and padding == "border"


# onnx.reference moves the point to the border before it looks for its neighbours, and not these.
@plain("GridSample", since=16, accepts=_is_cubic_with_border)
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str, padding_mode: str
) -> Array:
    """Interpolate between 4 x 4 neighbours of each point; what is outside is as at the border.

    x: (N, C, H, W). grid: (N, rows, columns, 2) of x and y from -1 to 1. Gives (N, C, rows,
    columns). Source: Keys 1981, as PyTorch and onnxruntime have it. Raises ValueError for other
    ranks.
    """
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[3] != 2:
        raise ValueError(f"cubic sampling is for images: x is {x.shape}, and the grid {grid.shape}")
    columns, rows = (
        _neighbours(grid[..., axis], x.shape[3 - axis], align_corners) for axis in (0, 1)
    )
    images = np.arange(len(x)).reshape(-1, 1, 1)
    total = np.zeros((len(x), *grid.shape[1:3], x.shape[1]), np.float64)
    for row, row_weight in rows:
        for column, column_weight in columns:
            found = x[images, :, row, column]
            total += found * (row_weight * column_weight)[..., None]
    return np.moveaxis(total, 3, 1).astype(x.dtype)


def _neighbours(points: Array, length: int, align_corners: int) -> list[tuple[Array, Array]]:
    """Return four neighbours along an axis, kept inside, and their weights."""
    half = (points.astype(np.float64) + 1) / 2
    places = half * (length - 1) if align_corners else half * length - 0.5
    first = np.floor(np.nan_to_num(places))
    found = []
    for step in (-1, 0, 1, 2):
        index = np.clip(first + step, 0, length - 1).astype(np.intp)
        found.append((index, _weight(np.abs(places - first - step))))
    return found


def _weight(distance: Array) -> Array:
    a, d = _SHARPNESS, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)
