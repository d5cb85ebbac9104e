"""Indices that a caller changes while they are gone by: those that were looked at count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.operators.indices.scattering import gather_nd, scatter_elements, scatter_nd
from aioinfer.runtime.operators.own.own_operators import gather_elements

FAR = 1 << 40
Array = np.ndarray[Any, Any]


class Late(Array):
    """Data whose reader or writer is overtaken by a change of the indices."""

    indices: Array | None = None

    def __array_finalize__(self, made_from: Any) -> None:
        self.indices = getattr(made_from, "indices", None)

    def _overtake(self, key: Any) -> None:
        is_fancy = isinstance(key, tuple) and any(isinstance(item, np.ndarray) for item in key)
        if is_fancy and self.indices is not None:
            self.indices[...] = FAR

    def __getitem__(self, key: Any) -> Any:
        self._overtake(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._overtake(key)
        super().__setitem__(key, value)


@pytest.mark.parametrize(
    ("operator", "indices", "rest"),
    [
        (gather_elements, [[1, 0], [2, 2]], ()),
        (gather_nd, [[1, 0], [2, 1]], ()),
        (scatter_elements, [[1, 0], [2, 1]], (np.ones((2, 2)),)),
        (scatter_nd, [[1, 0], [2, 1]], (np.ones(2),)),
    ],
)
def test_what_was_looked_at_is_gone_by(
    operator: Callable[..., Array], indices: list[list[int]], rest: tuple[Array, ...]
) -> None:
    plain = np.arange(6.0).reshape(3, 2)
    wanted = operator(plain, np.array(indices), *rest)
    data = plain.copy().view(Late)
    data.indices = given = np.array(indices)
    np.testing.assert_array_equal(np.asarray(operator(data, given, *rest)), wanted)
    assert (given == FAR).all(), "they were changed on the way"
