"""What oneDNN does to a result before it writes it: the vocabulary of fused nodes.

A fused node (domain ``aioinfer.cpu``) keeps its post-ops as text in the attribute ``post_ops``, in
the order in which they are applied: ``["sum(3)", "relu"]``, ``["add(2)", "clip(0,6)"]``. A number
in a binary form is the index of the node's input that is the other operand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....errors import GraphError

__all__ = [
    "BINARY",
    "CPU_DOMAIN",
    "UNARY",
    "PostOp",
    "loses_nan",
    "parse_post_ops",
    "slow_steps",
]

CPU_DOMAIN = "aioinfer.cpu"

UNARY: Mapping[str, tuple[str, float, float]] = {
    "relu": ("relu", 0.0, 0.0),
    "tanh": ("tanh", 0.0, 0.0),
    "elu": ("elu", 1.0, 0.0),
    "square": ("square", 0.0, 0.0),
    "abs": ("abs", 0.0, 0.0),
    "sqrt": ("sqrt", 0.0, 0.0),
    "linear": ("linear", 1.0, 0.0),
    "softplus": ("soft_relu", 1.0, 0.0),
    "hardsigmoid": ("hardsigmoid", 0.2, 0.5),
    "sigmoid": ("logistic", 0.0, 0.0),
    "exp": ("exp", 0.0, 0.0),
    "gelu_tanh": ("gelu_tanh", 0.0, 0.0),
    "gelu_erf": ("gelu_erf", 0.0, 0.0),
    "swish": ("swish", 1.0, 0.0),
    "log": ("log", 0.0, 0.0),
    "clip": ("clip", 0.0, 0.0),
    "pow": ("pow", 1.0, 1.0),
    "round": ("round", 0.0, 0.0),
    "mish": ("mish", 0.0, 0.0),
    "hardswish": ("hardswish", 1.0 / 6.0, 0.5),
}
"""Name -> oneDNN's algorithm and the defaults of its alpha and beta.

relu(a): a*x below 0. linear(a,b): a*x + b. clip(a,b): between a and b. pow(a,b): a * x**b.
hardsigmoid(a,b): a*x + b between 0 and 1. hardswish(a,b): x times that. swish(a): x*sigmoid(a*x).
softplus(a): log(1 + exp(a*x)) / a. elu(a): a * (exp(x) - 1) below 0.
"""

BINARY: Mapping[str, str] = {
    "sum": "sum",
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "max": "max",
    "min": "min",
}
"""Name -> oneDNN's algorithm. ``sum`` wants an operand of the result's shape, and may write over
it; the others take one that broadcasts to the result. The result so far is on the left."""

_LOSES_NAN = frozenset({"clip", "exp", "gelu_erf", "hardsigmoid", "max", "min"})

_AVX512 = 0x27  # of dnnl_cpu_isa_t
_SLOW_WITHOUT_AVX512 = frozenset({"gelu_tanh", "tanh"})

_FORM = re.compile(r"(\w+)(?:\(([^()]*)\))?")


class PostOp(NamedTuple):
    """One step: unary with ``alpha`` and ``beta``, or binary with the input ``operand``."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: int | None = None

    @classmethod
    def unary(cls, name: str, *numbers: float) -> PostOp:
        """Make a unary step; numbers that are not given take their defaults."""
        defaults = UNARY[name][1:]
        alpha, beta = (*map(float, numbers), *defaults[len(numbers) :])
        return cls(name, alpha, beta)

    @classmethod
    def binary(cls, name: str, operand: int) -> PostOp:
        """Make a binary step with the node's input at this index."""
        return cls(name, operand=operand)

    def counted_from(self, shift: int) -> PostOp:
        """Return it with the index of its operand, if it has one, raised by ``shift``."""
        if self.operand is None or not shift:
            return self
        return PostOp(self.name, self.alpha, self.beta, self.operand + shift)

    def __str__(self) -> str:
        return self.text()

    def text(self, shift: int = 0) -> str:
        """Write it as ``counted_from(shift)`` is written."""
        if self.operand is not None:
            return f"{self.name}({self.operand + shift})"
        numbers = (self.alpha, self.beta)
        if numbers == UNARY[self.name][1:]:
            return self.name
        return f"{self.name}({self.alpha!r},{self.beta!r})"


def loses_nan(post_op: PostOp) -> bool:
    """True if oneDNN makes a number of NaN, or NaN of an infinity, where ONNX does not."""
    return post_op.name in _LOSES_NAN or (post_op.name == "relu" and post_op.alpha == 0.0)


def slow_steps(instruction_set: int) -> frozenset[str]:
    """Name the unary steps that our own kernel computes two to three times as fast.

    oneDNN looks their coefficients up, for which registers before AVX-512 are too few. Pure;
    ``instruction_set`` is a dnnl_cpu_isa_t.
    """
    has_avx512 = instruction_set & _AVX512 == _AVX512
    return frozenset() if has_avx512 else _SLOW_WITHOUT_AVX512


def parse_post_ops(attributes: Mapping[str, Any]) -> tuple[PostOp, ...]:
    """Read the attribute ``post_ops`` of a node; none is (). Raises GraphError for a bad text."""
    return tuple(_parse(text) for text in attributes.get("post_ops", ()))


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> PostOp:
    form = _FORM.fullmatch(text)
    name = form[1] if form else ""
    numbers: Sequence[str] = form[2].split(",") if form and form[2] else ()
    try:
        if name in BINARY:
            (operand,) = map(int, numbers)
            return PostOp.binary(name, operand)
        return PostOp.unary(name, *map(float, numbers))
    except (KeyError, ValueError) as error:
        raise GraphError(
            f"{text!r} is no post-op; unary: {[*UNARY]}, with up to two numbers; binary: "
            f"{[*BINARY]}, with the index of an input"
        ) from error
