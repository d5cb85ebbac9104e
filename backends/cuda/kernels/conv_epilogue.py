"""Which of a convolution's later steps cuDNN computes with it: a table of patterns. Pure.

cuDNN adds a residual and the bias, in this order, and then applies one activation. What of a node's
steps has this form is left to it; the rest follows as a fused group of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...accelerator.elementwise.fused_step import FusedStep, steps_behind
from .library_call import FittedSteps

__all__ = ["fit_epilogue"]

_NEAR = 1e-3
"""Exporters write 0.16667 for 1/6, and float16 models round it."""

Pattern = tuple[tuple[str, tuple[str | float, ...]], ...]
"""Steps as (operator, operands): ``x`` is what the activation is of, ``s0`` the pattern's step 0, a
number an operand that is this constant, or a number of the step, behind its operands."""

_SIXTH = 1 / 6
_HALF = 0.5
_ROOT = 2**0.5
_COMMUTATIVE = frozenset({"Add", "Max", "Min", "Mul"})

_PATTERNS: tuple[tuple[str, Pattern], ...] = (
    ("relu", (("Relu", ("x",)),)),
    ("relu", (("Clip", ("x", 0.0)),)),
    ("relu", (("Clip", ("x", 0.0, "_")),)),
    ("relu", (("Max", ("x", 0.0)),)),
    ("relu6", (("Clip", ("x", 0.0, 6.0)),)),
    ("relu6", (("Relu", ("x",)), ("Min", ("s0", 6.0)))),
    ("silu", (("Swish", ("x", 1.0)),)),
    ("silu", (("Sigmoid", ("x",)), ("Mul", ("x", "s0")))),
    ("hardswish", (("HardSwish", ("x",)),)),
    ("hardswish", (("HardSigmoid", ("x", _SIXTH, _HALF)), ("Mul", ("x", "s0")))),
    (
        "hardswish",
        (
            ("Add", ("x", 3.0)),
            ("Clip", ("s0", 0.0, 6.0)),
            ("Div", ("s1", 6.0)),
            ("Mul", ("x", "s2")),
        ),
    ),
    (
        "hardswish",
        (
            ("Add", ("x", 3.0)),
            ("Clip", ("s0", 0.0, 6.0)),
            ("Mul", ("x", "s1")),
            ("Div", ("s2", 6.0)),
        ),
    ),
    ("gelu", (("Gelu", ("x", 0.0)),)),
    (
        "gelu",
        (
            ("Div", ("x", _ROOT)),
            ("Erf", ("s0",)),
            ("Add", ("s1", 1.0)),
            ("Mul", ("x", "s2")),
            ("Mul", ("s3", _HALF)),
        ),
    ),
    ("sigmoid", (("Sigmoid", ("x",)),)),
    ("tanh", (("Tanh", ("x",)),)),
)
"""The longer ones of those that begin alike win."""


def fit_epilogue(
    steps: Sequence[FusedStep], maps: Collection[str], numbers: Mapping[str, float]
) -> FittedSteps:
    """Divide steps into what cuDNN computes and the rest.

    ``maps`` are the operands of the result's own shape and type, ``numbers`` those that are
    constants of one element.
    """
    residual, taken, x = None, 0, "acc"
    if steps and steps[0].op == "Add":
        left, right = steps[0].operands
        other = right if left == "acc" else left
        if "acc" in (left, right) and other in maps and _is_closed(steps, 1, "s0"):
            residual, taken, x = other, 1, "s0"
    found = _find_activation(steps, taken, x, numbers)
    if found is None:
        return FittedSteps(residual=residual, rest=steps_behind(steps, taken, x))
    activation, number, count = found
    taken += count
    rest = steps_behind(steps, taken, f"s{taken - 1}")
    return FittedSteps(None, residual, activation, rest, number)


def _find_activation(
    steps: Sequence[FusedStep], start: int, x: str, numbers: Mapping[str, float]
) -> tuple[str, float, int] | None:
    """Return name, number and count of steps of the longest activation from ``start`` on."""
    best: tuple[str, float, int] | None = None
    first = steps[start] if start < len(steps) else None
    if first is not None and first.op == "LeakyRelu" and first.operands == (x,):
        best = "leaky_relu", first.numbers[0], 1
    for name, pattern in _PATTERNS:
        count = len(pattern)
        given = steps[start : start + count]
        if (best is not None and best[2] >= count) or len(given) < count:
            continue
        if all(
            _fits(step, form, start, x, numbers) for step, form in zip(given, pattern, strict=True)
        ):
            best = name, 0.0, count
    if best is None or not _is_closed(steps, start + best[2], f"s{start + best[2] - 1}"):
        return None
    return best


def _fits(
    step: FusedStep,
    form: tuple[str, tuple[str | float, ...]],
    start: int,
    x: str,
    numbers: Mapping[str, float],
) -> bool:
    op, wanted = form
    given: tuple[str | float, ...] = (*step.operands, *step.numbers)
    if step.op != op or len(given) != len(wanted):
        return False
    orders = [given, given[::-1]] if op in _COMMUTATIVE and len(given) == 2 else [given]
    return any(
        all(_is(a, b, start, x, numbers) for a, b in zip(order, wanted, strict=True))
        for order in orders
    )


def _is(
    given: str | float, wanted: str | float, start: int, x: str, numbers: Mapping[str, float]
) -> bool:
    if isinstance(wanted, float):
        number = numbers.get(given) if isinstance(given, str) else given
        return number is not None and abs(number - wanted) <= _NEAR * abs(wanted)
    if wanted.startswith("s"):
        return given == f"s{start + int(wanted[1:])}"
    return given == (x if wanted == "x" else wanted)


def _is_closed(steps: Sequence[FusedStep], count: int, result: str) -> bool:
    """True if later steps need no more than the result of the first ``count``."""
    hidden = {"acc", *(f"s{index}" for index in range(count))} - {result}
    return not any(hidden.intersection(step.operands) for step in steps[count:])
