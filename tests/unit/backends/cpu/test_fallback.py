"""Without the extension: whole networks give the same answers, step by step in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.fallback import KERNELS, PythonRun
from aioinfer.backends.cpu.native import Runner
from aioinfer.backends.cpu.onednn import open_engine
from aioinfer.backends.cpu.plan import NativeStep, PrimitiveStep
from aioinfer.errors import TensorError
from unit.backends.cpu.comparing import model_of, run
from unit.backends.cpu.plans import BoundPlan, plan_of

node = helper.make_node
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)
NODES = [
    node("MatMul", ["x", "w"], ["a"]),
    node("Transpose", ["a"], ["b"]),
    node("Slice", ["b", "from", "to", "axis", "back"], ["c"]),
    node("Concat", ["b", "c"], ["d"], axis=1),
    node("Gather", ["d", "i"], ["e"], "lookup", axis=1),
    node("Tanh", ["e"], ["y"]),
]
CONSTANTS = {
    "w": W,
    "from": np.array([-1]),
    "to": np.array([-100]),
    "axis": np.array([0]),
    "back": np.array([-1]),
}


def python() -> Runner:
    return Runner(PythonRun(open_engine()), tuple(KERNELS), False)


def inputs(*index: int) -> dict[str, Any]:
    return {"x": X, "i": np.array(index, np.int64)}


def test_a_plan_gives_the_same_by_both_ways(core: Core) -> None:
    given = inputs(0, -1, 3, 3)
    model = model_of(NODES, given, constants=CONSTANTS)
    plan = plan_of(core, model, given)
    kinds = {type(step) for step in plan.steps}
    assert kinds >= {PrimitiveStep, NativeStep}
    (native,) = BoundPlan(plan).run(given)
    times = np.zeros(len(plan.steps) + 1, np.int64)
    (slow,) = BoundPlan(plan, python()).run(given, times)
    np.testing.assert_allclose(slow, native, rtol=0, atol=1e-6)
    np.testing.assert_allclose(native, run(core, model, "REFERENCE", given)["y"], atol=1e-5)
    assert (np.diff(times) >= 0).all()
    assert times[0] > 0


@pytest.mark.parametrize("by", [None, python])
def test_errors_name_the_node_both_ways(core: Core, by: Any) -> None:
    given = inputs(0, 1)
    plan = plan_of(core, model_of(NODES, given, constants=CONSTANTS), given)
    bound = BoundPlan(plan, None if by is None else by())
    with pytest.raises(TensorError, match=r"Gather \(node 'lookup'\): an index in the data is out"):
        bound.run(inputs(0, 99))


def test_nothing_is_said_about_infinities_and_nans(core: Core) -> None:
    given = {"x": np.array([[np.inf, -1, 0, np.nan]], np.float32)}
    nodes = [node("Log", ["x"], ["a"]), node("Reciprocal", ["x"], ["b"])]
    nodes += [node("Sub", ["a", "b"], ["y"])]
    plan = plan_of(core, model_of(nodes, given), given, passes=())
    (native,) = BoundPlan(plan).run(given)
    (slow,) = BoundPlan(plan, python()).run(given)  # a warning would be an error here
    np.testing.assert_array_equal(slow, native)
