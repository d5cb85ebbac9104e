from __future__ import annotations

import itertools

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.opencl.comparing import assert_same_as_reference, model_of, operator


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_transpose_puts_axes_in_any_order(permutation: tuple[int, ...], core: Core) -> None:
    inputs = {"x": np.arange(30, dtype=np.float32).reshape(2, 3, 5)}
    node = operator("Transpose", "x", perm=permutation)
    assert_same_as_reference(core, model_of([node], inputs), inputs)


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.int64, np.float16, np.float64])
def test_elements_of_any_size_are_moved(dtype: type, core: Core) -> None:
    inputs = {"x": np.arange(24).reshape(2, 3, 4).astype(dtype)}
    assert_same_as_reference(core, model_of([operator("Transpose", "x")], inputs), inputs)
