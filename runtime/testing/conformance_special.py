"""Models whose numbers or shapes are special: NaN, infinities, saturation, images of one pixel.

What devices do with NaN in windows, and in what they fuse into matmuls, is left out: on CPU that
is what the property CPU_KEEP_NAN is for.
"""

from __future__ import annotations

import numpy as np

from .conformance_models import SampleModel, sample_node

__all__ = ["SPECIAL_SAMPLES"]

F32 = np.float32
ROW = (F32, ("n", 16))
ELEMENTWISE = (
    "relu",
    "clip",
    "greatest",
    "least",
    "leaky",
    "sigmoid",
    "tanh",
    "abs",
    "picked",
    "chained",
)

SPECIAL_SAMPLES: tuple[SampleModel, ...] = (
    SampleModel(
        "special_numbers",
        {"x": ROW, "k": ROW},
        dict.fromkeys(ELEMENTWISE, ROW),
        (
            sample_node("Relu", "x", "relu"),
            sample_node("Clip", "x low high", "clip"),
            sample_node("Max", "x k", "greatest"),
            sample_node("Min", "x k", "least"),
            sample_node("LeakyRelu", "x", "leaky"),
            sample_node("Sigmoid", "x", "sigmoid"),
            sample_node("Tanh", "x", "tanh"),
            sample_node("Abs", "x", "abs"),
            sample_node("IsNaN", "x", "missing"),
            sample_node("Where", "missing k x", "picked"),
            sample_node("Mul", "x k", "product"),
            sample_node("Relu", "product", "positive"),
            sample_node("Clip", "positive low high", "chained"),
        ),
        ({"x": (8, 16), "k": (8, 16)}, {"x": (3, 16), "k": (3, 16)}),
        {"low": np.array(-1, F32), "high": np.array(2, F32)},
        has_special_numbers=True,
    ),
    SampleModel(
        "special_rows",
        {"x": (F32, ("n", 3, 5, 7))},
        {
            "highest": (F32, ("n", 3, 1, 1)),
            "lowest": (F32, ("n", 3, 5, 1)),
            "mean": (F32, ("n", 3, 5)),
            "pooled": (F32, ("n", 3, 1, 1)),
            "share": (F32, ("n", 3, 5, 7)),
        },
        (
            sample_node("ReduceMax", "x rows", "highest"),
            sample_node("ReduceMin", "x last", "lowest"),
            sample_node("ReduceMean", "x last", "mean", keepdims=0),
            sample_node("GlobalMaxPool", "x", "pooled"),
            sample_node("Softmax", "x", "share", axis=-1),
        ),
        ({"x": (8, 3, 5, 7)}, {"x": (1, 3, 5, 7)}),
        {"rows": np.array([2, 3]), "last": np.array([-1])},
        has_special_numbers=True,
    ),
    SampleModel(
        "saturated",
        {"x": (F32, ("n", 8))},
        {"signed": (np.int8, ("n", 8)), "unsigned": (np.uint8, ("n", 8)), "even": (F32, ("n", 8))},
        (
            sample_node("Mul", "x huge", "far"),
            sample_node("QuantizeLinear", "far one below", "signed"),
            sample_node("QuantizeLinear", "far one above", "unsigned"),
            sample_node("Mul", "x two", "doubled"),
            sample_node("Floor", "doubled", "whole"),
            sample_node("Div", "whole two", "halves"),
            sample_node("QuantizeLinear", "halves one above", "rounded"),
            sample_node("DequantizeLinear", "rounded one above", "even"),
        ),
        ({"x": (6, 8)}, {"x": (1, 8)}),
        {
            "huge": np.array(1e10, F32),
            "one": np.array(1, F32),
            "two": np.array(2, F32),
            "below": np.array(-3, np.int8),
            "above": np.array(101, np.uint8),
        },
    ),
    SampleModel(
        "single_pixels",
        {"x": (F32, ("n", 6, 1, 1))},
        {"y": (F32, ("n", 6, 1, 1)), "z": (F32, ("n", 6, 1, 1))},
        (
            sample_node("InstanceNormalization", "x scale shift", "y"),
            sample_node("PRelu", "x slope", "z"),
        ),
        ({"x": (3, 6, 1, 1)}, {"x": (1, 6, 1, 1)}),
        {
            "scale": np.arange(1, 7, dtype=F32),
            "shift": np.arange(6, dtype=F32),
            "slope": np.arange(6, dtype=F32).reshape(6, 1, 1),
        },
    ),
)
