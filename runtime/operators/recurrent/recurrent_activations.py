"""The activations of LSTM, GRU and RNN by the names that ONNX gives them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..plain_operators import Array

__all__ = ["Activation", "activation_sets"]

Activation = Callable[[Array], Array]


class _Function(NamedTuple):
    """``compute(x, **numbers)``, elementwise; a number without a default is None here."""

    compute: Callable[..., Array]
    numbers: Mapping[str, float | None]


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1 / (1 + small), small / (1 + small))


_FUNCTIONS: Mapping[str, _Function] = {
    "Affine": _Function(lambda x, alpha, beta: alpha * x + beta, {"alpha": None, "beta": None}),
    "Elu": _Function(lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x), {"alpha": 1.0}),
    "HardSigmoid": _Function(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), {"alpha": 0.2, "beta": 0.5}
    ),
    "LeakyRelu": _Function(lambda x, alpha: np.where(x < 0, alpha * x, x), {"alpha": 0.01}),
    "Relu": _Function(lambda x: np.maximum(x, 0), {}),
    "ScaledTanh": _Function(
        lambda x, alpha, beta: alpha * np.tanh(beta * x), {"alpha": None, "beta": None}
    ),
    "Sigmoid": _Function(_sigmoid, {}),
    "Softplus": _Function(lambda x: np.logaddexp(x, 0), {}),
    "Softsign": _Function(lambda x: x / (1 + np.abs(x)), {}),
    "Tanh": _Function(np.tanh, {}),
    "ThresholdedRelu": _Function(lambda x, alpha: np.where(x >= alpha, x, 0), {"alpha": 1.0}),
}
_BY_FOLDED_NAME = {name.casefold(): function for name, function in _FUNCTIONS.items()}


def activation_sets(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    defaults: Sequence[str],
) -> list[list[Activation]]:
    """Return the activations of one direction, or of each of two.

    ``alphas`` and ``betas`` go to the functions that take them, in order; where they run out, the
    default of ONNX's operator of that name is taken.
    Raises ValueError for another number of functions, for one that there is none of, and for one
    that is no operator, and so has no default, without its numbers.
    """
    given = list(names or defaults)
    if len(given) not in (len(defaults), 2 * len(defaults)):
        raise ValueError(
            f"there are {len(given)} activations {given}; {len(defaults)} are wanted, or "
            f"{2 * len(defaults)} for two directions"
        )
    rest = {"alpha": iter(alphas or ()), "beta": iter(betas or ())}
    made: list[Activation] = []
    for name in given:
        function = _BY_FOLDED_NAME.get(name.casefold())
        if function is None:
            raise ValueError(f"there is no activation {name!r}; there are {', '.join(_FUNCTIONS)}")
        numbers = {key: next(rest[key], default) for key, default in function.numbers.items()}
        if None in numbers.values():
            raise ValueError(f"{name} needs a number in activation_alpha, and in activation_beta")
        made.append(functools.partial(function.compute, **numbers))
    return [made[start : start + len(defaults)] for start in range(0, len(made), len(defaults))]
