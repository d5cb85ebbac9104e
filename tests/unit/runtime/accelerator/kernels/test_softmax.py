from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.runtime.accelerator.comparing import assert_same_as_reference, model_of, operator


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_any_axis(op_type: str, axis: int, core: Core) -> None:
    inputs = {"x": np.random.default_rng(1).uniform(-9, 90, (3, 70, 5)).astype(np.float32)}
    assert_same_as_reference(core, model_of([operator(op_type, "x", axis=axis)], inputs), inputs)
