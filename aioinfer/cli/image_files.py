"""Inputs from images, by Pillow: resized to what the input takes, pixels 0 to 255."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NotSupportedError, TensorError
from ..runtime.graph import shape_text

__all__ = ["IMAGE_SUFFIXES", "read_images"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

Array = np.ndarray[Any, Any]


def read_images(
    paths: Sequence[Path], dtype: np.dtype[Any], name: str, shape: Sequence[int]
) -> list[Array]:
    """Read images into arrays of a shape (N, C, H, W) or (N, H, W, C), with C 1 or 3.

    Each array takes N images that follow each other, from the first again after the last. Raises
    TensorError for another shape or an unreadable file, NotSupportedError without Pillow.
    """
    if len(shape) != 4 or not {1, 3} & {shape[1], shape[3]}:
        raise TensorError(
            f"file {paths[0].name!r} is an image, and input {name!r} is {shape_text(shape)}; "
            f"images go into [N,C,H,W] or [N,H,W,C] with 1 or 3 colours",
            tensor=name,
        )
    batch, *item_shape = shape
    if batch == 0:
        return [np.zeros(shape, dtype)]
    pixels = [_read_image(path, item_shape) for path in paths]
    return [
        np.stack([pixels[(first + k) % len(pixels)] for k in range(batch)]).astype(dtype)
        for first in range(0, len(pixels), batch)
    ]


def _read_image(path: Path, item_shape: Sequence[int]) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise NotSupportedError(
            f"{path.name!r} is an image, and Pillow is not installed: pip install Pillow, or give "
            f"a .npy file"
        ) from error
    is_planar = item_shape[0] in (1, 3)
    colours, height, width = item_shape if is_planar else (item_shape[2], *item_shape[:2])
    try:
        with Image.open(path) as image:
            resized = image.convert("L" if colours == 1 else "RGB").resize((width, height))
            pixels = np.asarray(resized).reshape(height, width, colours)
    except (OSError, ValueError) as error:
        raise TensorError(f"cannot read {str(path)!r} as an image: {error}") from error
    return pixels.transpose(2, 0, 1) if is_planar else pixels
