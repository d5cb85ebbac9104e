"""Serve digits to clients that send files of pictures and get texts.

The model directory is models/digits with this folder's model.toml, and examples/digits/digits.onnx
as models/digits/1/model.onnx. Run

    PYTHONPATH=examples/10_served_functions aioinfer serve models --functions digit_functions
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aioinfer.images import ImageDecoder
from aioinfer.serving import postprocess, preprocess

BRIGHTEST = 16.0  # of the pictures that the model has learned from
decode = ImageDecoder(8, 8, colors="GRAY", max_pixels=10_000_000)


@preprocess(takes={"file": ("BYTES", [-1])})
def pictures(given: dict[str, Any]) -> dict[str, Any]:
    """Decode each JPEG, PNG or WebP to a row of the model's input."""
    rows = np.concatenate([decode(data) for data in given["file"]])
    return {"image": rows.transpose(0, 3, 1, 2) * np.float32(BRIGHTEST / 255)}


@postprocess(gives={"digit": ("BYTES", [-1]), "probability": ("FP32", [-1])})
def digits(outputs: dict[str, Any]) -> dict[str, Any]:
    """Name the most probable digit of each row."""
    logits = outputs["logits"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return {
        "digit": [str(number) for number in shares.argmax(axis=1)],
        "probability": shares.max(axis=1),
    }
