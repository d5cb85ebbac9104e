from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

X = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
NODES = {
    "Identity": operator("Identity", "x"),
    "Flatten": operator("Flatten", "x", axis=2),
    "Reshape": operator("Reshape", "x", "shape"),
    "Squeeze": operator("Squeeze", "x", "axes"),
    "Unsqueeze": operator("Unsqueeze", "x", "axes"),
}
CONSTANTS = {"shape": np.array([4, -1]), "axes": np.array([1])}


@pytest.mark.parametrize("op_type", NODES)
def test_a_view_keeps_the_elements_and_launches_nothing(op_type: str, core: Core) -> None:
    node = NODES[op_type]
    constants = {name: CONSTANTS[name] for name in node.input if name in CONSTANTS}
    model = model_of([node], {"x": X}, constants=constants)
    assert_same_as_reference(core, model, {"x": X})
    with core.load_network(model, "OPENCL", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync(X)
        assert request.profiling() == []


def test_a_reshape_to_a_shape_that_comes_with_the_run(core: Core) -> None:
    inputs = {"x": X, "shape": np.array([6, 4])}
    model = model_of([operator("Reshape", "x", "shape")], inputs)
    assert_same_as_reference(core, model, inputs)
