"""Pictures that are drawn, and are as dear to decode and to compute as photographs are."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

__all__ = ["jpeg", "video_frame"]


def jpeg(seed: int = 0, width: int = 640, height: int = 480) -> bytes:
    """Draw soft clouds of colours, as the bytes of a JPEG."""
    chance = np.random.default_rng(seed)
    clouds = chance.integers(0, 256, (height // 16, width // 16, 3), np.uint8)
    file = io.BytesIO()
    picture = Image.fromarray(clouds).resize((width, height), Image.Resampling.BICUBIC)
    picture.save(file, "JPEG", quality=88)
    return file.getvalue()


def video_frame(number: int, size: int) -> np.ndarray:
    """Draw one frame of a film in which a bright square moves: uint8 (1, size, size, 3)."""
    frame = np.full((1, size, size, 3), 32, np.uint8)
    side, way = size // 4, size - size // 4
    left, top = number * 5 % way, number * 3 % way
    frame[:, top : top + side, left : left + side] = (250, 200, 40)
    return frame
