from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

X = np.random.default_rng(0).integers(-9, 9, (2, 4, 5))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("shift", [0, 2, -1, -7, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_trilu_keeps_a_triangle(upper: int, shift: int, dtype: type, core: Core) -> None:
    inputs = {"x": X.astype(dtype)}
    node = operator("Trilu", "x", "k", upper=upper)
    model = model_of([node], inputs, constants={"k": np.array(shift)})
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_cumsum_adds_up_a_line(
    axis: int, reverse: int, exclusive: int, dtype: type, core: Core
) -> None:
    inputs = {"x": X.astype(dtype)}
    node = operator("CumSum", "x", "axis", reverse=reverse, exclusive=exclusive)
    model = model_of([node], inputs, constants={"axis": np.array(axis)})
    assert_same_as_reference(core, model, inputs)
