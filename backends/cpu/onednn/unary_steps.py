"""What a unary operator of ONNX is as one step: of oneDNN, or of the native kernels only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ....runtime.graph import Node
from ....runtime.passes.rewriting.matching import scalar_of
from .post_ops import UNARY, PostOp

__all__ = ["FLOAT32_MOST", "UNARY_STEPS", "clip_bounds"]

FLOAT32_MOST = float(np.finfo(np.float32).max)


def _of(name: str, *numbers: float) -> Callable[[Node], PostOp]:
    step = _step(name, *numbers)
    return lambda node: step


def _step(name: str, *numbers: float) -> PostOp:
    if name in UNARY:
        return PostOp.unary(name, *numbers)
    alpha, beta = (*numbers, 0.0, 0.0)[:2]
    return PostOp(name, alpha, beta)


def _with(name: str, **defaults: float) -> Callable[[Node], PostOp]:
    """Make a step whose numbers are attributes, in the order of ``defaults``."""

    def made(node: Node) -> PostOp:
        numbers = (node.attributes.get(key, number) for key, number in defaults.items())
        return _step(name, *map(float, numbers))

    return made


def _gelu(node: Node) -> PostOp:
    is_tanh = node.text("approximate", "none") == "tanh"
    return PostOp.unary("gelu_tanh" if is_tanh else "gelu_erf")


def clip_bounds(node: Node) -> tuple[float | None, float | None]:
    """Return the bounds of a Clip of float32; None for one that is computed.

    One that is not given is the lowest or the highest finite number; NaN bounds nothing.
    """
    low, high = node.input_at(1), node.input_at(2)
    bottom = -FLOAT32_MOST if low is None else scalar_of(low)
    top = FLOAT32_MOST if high is None else scalar_of(high)
    if bottom is not None and math.isnan(bottom):
        bottom = -math.inf
    return bottom, math.inf if top is not None and math.isnan(top) else top


UNARY_STEPS: Mapping[str, Callable[[Node], PostOp]] = {
    "Abs": _of("abs"),
    "Acos": _of("acos"),
    "Acosh": _of("acosh"),
    "Asin": _of("asin"),
    "Asinh": _of("asinh"),
    "Atan": _of("atan"),
    "Atanh": _of("atanh"),
    "Ceil": _of("ceil"),
    "Celu": _with("celu", alpha=1.0),
    "Cos": _of("cos"),
    "Cosh": _of("cosh"),
    "Elu": _with("elu", alpha=1.0),
    "Erf": _of("erf"),
    "Exp": _of("exp"),
    "Floor": _of("floor"),
    "Gelu": _gelu,
    "HardSigmoid": _with("hardsigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _of("hardswish"),
    "IsInf": _with("isinf", detect_negative=1, detect_positive=1),
    "IsNaN": _of("isnan"),
    "LeakyRelu": _with("relu", alpha=0.01),
    "Log": _of("log"),
    "Mish": _of("mish"),
    "Neg": _of("linear", -1.0),
    "Reciprocal": _of("pow", 1.0, -1.0),
    "Relu": _of("relu"),
    "Round": _of("round"),
    "Selu": _with("selu", alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _with("shrink", lambd=0.5, bias=0.0),
    "Sigmoid": _of("sigmoid"),
    "Sign": _of("sign"),
    "Sin": _of("sin"),
    "Sinh": _of("sinh"),
    "Softplus": _of("softplus"),
    "Softsign": _of("softsign"),
    "Sqrt": _of("sqrt"),
    "Swish": _with("swish", alpha=1.0),
    "Tan": _of("tan"),
    "Tanh": _of("tanh"),
    "ThresholdedRelu": _with("thresholded", alpha=1.0),
}
"""``UNARY`` has the names of those steps that oneDNN has."""
