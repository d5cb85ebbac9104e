"""A convolution that is asked of cuDNN, with what a test does not care about."""

from __future__ import annotations

from typing import Any

from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation

__all__ = ["attention_operation", "conv_operation"]


def conv_operation(**given: Any) -> LibraryOperation:
    """Give a 3 x 3 convolution of 64 channels, or what ``given`` makes of it."""
    parameters: dict[str, Any] = {
        "dtype": "float16",
        "image": (8, 64, 56, 56),
        "filters": (64, 64, 3, 3),
        "strides": (1, 1),
        "pads_begin": (1, 1),
        "pads_end": (1, 1),
        "dilations": (1, 1),
        "groups": 1,
        "has_bias": True,
        "has_residual": False,
        "activation": None,
        "number": 0.0,
        "has_tf32": False,
        "workspace_bytes": 32 << 20,
    }
    return LibraryOperation.of("cudnn", "conv", **{**parameters, **given})


def attention_operation(**given: Any) -> LibraryOperation:
    """Give an attention whose heads lie packed in rows, or what ``given`` makes of it."""
    strides = (128 * 12 * 64, 64, 12 * 64, 1)
    parameters: dict[str, Any] = {
        "dtype": "float16",
        "batch": 2,
        "heads": 12,
        "queries": 128,
        "keys": 128,
        "head": 64,
        "scale": 0.125,
        "has_mask": False,
        "mask_shape": None,
        **{f"{name}_strides": strides for name in "qkvo"},
        "workspace_bytes": 0,
    }
    return LibraryOperation.of("cudnn", "attention", **{**parameters, **given})
