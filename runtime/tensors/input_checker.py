"""InputChecker: the check of a network's inputs, prepared once per network. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...executors.cached_property import cached_property
from ..graph import DType
from .device_array import AdoptArray
from .tensor import Port, check_inputs

__all__ = ["InputChecker"]

Expected = tuple[str, np.dtype, tuple[int | None, ...], tuple[tuple[int, int], ...]]
Place = tuple[str, int]
"""An axis of an input."""


class InputChecker:
    """Checks what callers give to one network; thread-safe.

    What most callers give, plain arrays of exactly the declared type, and shape as far as it is
    declared, is passed with a few comparisons. All else goes to ``check_inputs``, which takes more
    and explains what is wrong. ``adopt`` takes arrays in the memory of the network's device.
    """

    def __init__(
        self, ports: Sequence[Port], network: str, adopt: AdoptArray | None = None
    ) -> None:
        self._ports, self._network, self._adopt = tuple(ports), network, adopt

    @cached_property
    def _expected(self) -> tuple[Expected, ...] | None:
        return _expected(self._ports)

    @cached_property
    def _equal(self) -> tuple[tuple[Place, Place], ...]:
        return _equal_places(self._ports)

    def check(self, given: Any) -> dict[str, Any]:
        """Turn what the caller of a run gave into name -> array; as ``check_inputs`` does.

        The dict is a new one; the arrays are taken as they are.
        """
        expected = self._expected
        if expected is None or type(given) is not dict or len(given) != len(expected):
            return self._check_slowly(given)
        for name, dtype, shape, declared in expected:
            array = given.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype:
                return self._check_slowly(given)
            lengths = array.shape
            if lengths != shape:
                if len(lengths) != len(shape):
                    return self._check_slowly(given)
                for axis, length in declared:
                    if lengths[axis] != length:
                        return self._check_slowly(given)
        for (name, axis), (other, other_axis) in self._equal:
            if given[name].shape[axis] != given[other].shape[other_axis]:
                return self._check_slowly(given)
        return given.copy()

    def _check_slowly(self, given: Any) -> dict[str, Any]:
        return check_inputs(given, self._ports, self._network, self._adopt, is_run=True)


def _expected(ports: Sequence[Port]) -> tuple[Expected, ...] | None:
    """List name, type and shape of each port, None for an open length, and the axes of the others.

    None if a type or rank is open.
    """
    expected: list[Expected] = []
    for port in ports:
        dtype, shape = port.dtype, port.shape
        if dtype is None or shape is None or dtype == DType.STRING.numpy:
            return None
        lengths = tuple(dim if isinstance(dim, int) else None for dim in shape)
        declared = tuple((axis, dim) for axis, dim in enumerate(shape) if isinstance(dim, int))
        expected.append((port.name, dtype, lengths, declared))
    return tuple(expected)


def _equal_places(ports: Sequence[Port]) -> tuple[tuple[Place, Place], ...]:
    """List the axes whose lengths are equal as one symbol stands for both."""
    first: dict[str, Place] = {}
    equal: list[tuple[Place, Place]] = []
    for port in ports:
        for axis, dim in enumerate(port.shape or ()):
            if isinstance(dim, str):
                place = port.name, axis
                known = first.setdefault(dim, place)
                if known is not place:
                    equal.append((known, place))
    return tuple(equal)
