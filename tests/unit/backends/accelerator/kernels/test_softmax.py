from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_any_axis(op_type: str, axis: int, core: Core) -> None:
    inputs = {"x": np.random.default_rng(1).uniform(-9, 90, (3, 70, 5)).astype(np.float32)}
    assert_same_as_reference(core, model_of([operator(op_type, "x", axis=axis)], inputs), inputs)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(5, 300), (70, 1), (3, 63), (1, 1000)])
def test_rows_are_shared_by_work_items(op_type: str, shape: tuple[int, int], core: Core) -> None:
    x = np.random.default_rng(1).uniform(-9, 90, shape).astype(np.float32)
    x[0, ::3] = -np.inf
    x[-1, -1] = np.nan
    assert_same_as_reference(core, model_of([operator(op_type, "x")], {"x": x}), {"x": x})


@pytest.mark.parametrize("axis", [0, 1])
def test_logarithms_of_shares_beside_large_numbers_are_as_exact(axis: int, core: Core) -> None:
    x = np.float32([[30_001, 30_001], [30_000, 30_003]])
    model = model_of([operator("LogSoftmax", "x", axis=axis)], {"x": x})
    assert_same_as_reference(core, model, {"x": x}, INFERENCE_PRECISION_HINT="f32")
