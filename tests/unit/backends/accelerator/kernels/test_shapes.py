from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

X = np.zeros((2, 3, 5), np.float32)


@pytest.mark.parametrize(
    "nodes",
    [
        [operator("Shape", "x", start=1)],
        [operator("Size", "x")],
        [operator("Shape", "x", outputs=["s"]), operator("ConstantOfShape", "s")],
    ],
    ids=["Shape", "Size", "ConstantOfShape"],
)
def test_what_shapes_determine_is_a_constant_of_the_plan(nodes, core: Core) -> None:
    assert_same_as_reference(core, model_of(nodes, {"x": X}, dynamic=True), {"x": X})
