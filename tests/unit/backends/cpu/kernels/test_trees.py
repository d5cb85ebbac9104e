"""Ensembles of trees natively: as numpy computes them, and within tables that are damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import KIND_END, step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.steps import NativeStep, Step
from aioinfer.runtime.graph import DType, Node, TensorType, Value
from aioinfer.runtime.operators import make_operator
from unit.backends.cpu.single_nodes import model_of_nodes, plan_of, run_plan
from unit.runtime.operators.ml.test_tree_ensembles import (
    FEATURES,
    MODES,
    STUMP,
    entries,
    member_trees,
    model_of,
    rows_of,
    trees,
)


def run_both(
    op_type: str, x: np.ndarray, attributes: dict[str, Any], *, thread_count: int = 1
) -> tuple[tuple[Step, ...], list[np.ndarray], tuple[np.ndarray, ...]]:
    """Return the steps of a node's plan, what they make, and what numpy makes."""
    made = ["label", "scores"] if op_type == "TreeEnsembleClassifier" else ["scores"]
    bare = Node(
        op_type,
        [Value("x", TensorType(DType.of(x.dtype), x.shape))],
        [Value(name) for name in made],
        attributes,
        name="n",
        domain="ai.onnx.ml",
    )
    opsets = {"": 21, "ai.onnx.ml": 5 if op_type == "TreeEnsemble" else 3}
    wanted = make_operator(bare, opsets)(x)
    for value, array in zip(bare.outputs, wanted, strict=True):
        value.type = TensorType(DType.of(array.dtype), array.shape)
    model = model_of_nodes([bare], [bare.inputs[0]], bare.outputs)  # type: ignore[list-item]
    plan = plan_of(model, thread_count=thread_count)
    return plan.steps, run_plan(plan, [x]), wanted


def assert_native(
    op_type: str, x: np.ndarray, attributes: dict[str, Any], *, thread_count: int = 1
) -> None:
    steps, found, wanted = run_both(op_type, x, attributes, thread_count=thread_count)
    assert [step.implementation for step in steps] == ["native:tree_ensemble"]
    for array, right in zip(found, wanted, strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_allclose(array, right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 21, 700])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_of_any_number_of_rows(aggregate: str, count: int, missing: bool) -> None:
    nodes, leaves = trees(1, 11, 6, missing=missing)
    said = entries(leaves, "target", 3, 2)
    attributes = {
        **nodes,
        **said,
        "n_targets": 3,
        "aggregate_function": aggregate,
        "base_values": [0.5, -1.0, 2.0],
    }
    x = rows_of(missing=missing, count=count)
    assert_native("TreeEnsembleRegressor", x, attributes, thread_count=2)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("speaks_of", [1, 2])
@pytest.mark.parametrize("base", [[], [0.25]])
def test_classes(transform: str, classes: int, speaks_of: int, base: list[float]) -> None:
    nodes, leaves = trees(2, 5, 4)
    said = entries(leaves, "class", min(classes, speaks_of), 3)
    said["class_weights"] = (np.float32(said["class_weights"]) / 9).tolist()
    attributes = {
        **nodes,
        **said,
        "classlabels_int64s": [9, -3, 4, 7][:classes],
        "post_transform": transform,
        "base_values": base,
    }
    if (classes, speaks_of, transform) == (2, 1, "PROBIT"):
        return  # of a shape that no rule tells: no plan is made
    assert_native("TreeEnsembleClassifier", rows_of(), attributes)


def test_a_tree_as_deep_as_it_has_questions() -> None:
    depth = 300
    nodes = {
        "nodes_treeids": [0] * (2 * depth + 1),
        "nodes_nodeids": list(range(2 * depth + 1)),
        "nodes_featureids": [0] * (2 * depth + 1),
        "nodes_modes": ["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1),
        "nodes_values": [*map(float, range(depth)), *[0.0] * (depth + 1)],
        "nodes_truenodeids": [*range(depth, 2 * depth), *[0] * (depth + 1)],
        "nodes_falsenodeids": [*range(1, depth), 2 * depth, *[0] * (depth + 1)],
    }
    said = entries([(0, depth + place) for place in range(depth + 1)], "target", 1, 5)
    x = np.linspace(-1, depth + 1, 77, dtype=np.float32)[:, None]
    assert_native("TreeEnsembleRegressor", x, {**nodes, **said, "n_targets": 1})


def test_more_paths_than_anybody_counts() -> None:
    depth = 60
    nodes = {
        "nodes_treeids": [0] * (depth + 1),
        "nodes_nodeids": list(range(depth + 1)),
        "nodes_featureids": [0] * (depth + 1),
        "nodes_modes": ["BRANCH_LEQ"] * depth + ["LEAF"],
        "nodes_values": [0.0] * (depth + 1),
        "nodes_truenodeids": [*range(1, depth + 1), 0],
        "nodes_falsenodeids": [*range(1, depth + 1), 0],
    }
    said = entries([(0, depth)], "target", 1, 5)
    x = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    assert_native("TreeEnsembleRegressor", x, {**nodes, **said, "n_targets": 1})


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_the_new_form_and_its_sets(aggregate: int) -> None:
    x = np.array([[1, 9, 1], [2, -3, 0], [2, 4, 0], [2, 2, 1], [2, np.nan, 3]], np.float32)
    attributes = {**member_trees(np.float32), "aggregate_function": aggregate}
    assert_native("TreeEnsemble", x, attributes)


@pytest.mark.parametrize(
    ("dtype", "wrong"),
    [
        (np.int64, {}),
        (np.float32, {"target_weights_as_tensor": np.array([0.1, 0.2])}),
        (np.float32, {"nodes_values_as_tensor": np.array([0.5, 0.0, 0.0])}),
    ],
    ids=str,
)
def test_what_wants_more_than_float32_is_left_to_numpy(dtype: Any, wrong: dict[str, Any]) -> None:
    attributes = {**STUMP, **wrong}
    for name in wrong:
        attributes.pop(name.removesuffix("_as_tensor"))
    steps, found, wanted = run_both(
        "TreeEnsembleRegressor", np.array([[0], [1]], dtype), attributes
    )
    assert [step.implementation for step in steps] == ["numpy"]
    np.testing.assert_array_equal(found[0], wanted[0])


def test_results_do_not_depend_on_rows_beside() -> None:
    nodes, leaves = trees(3, 30, 7, MODES)
    attributes = {**nodes, **entries(leaves, "target", 1, 2), "n_targets": 1}
    x = np.random.default_rng(4).normal(size=(37, FEATURES)).astype(np.float32)
    _, (whole,), _ = run_both("TreeEnsembleRegressor", x, attributes)
    for place in range(len(x)):
        _, (alone,), _ = run_both("TreeEnsembleRegressor", x[place : place + 1], attributes)
        np.testing.assert_array_equal(alone, whole[place : place + 1])


def test_plans_share_their_tables_and_blobs_hold_them(core: Core) -> None:
    nodes, leaves = trees(5, 9, 5)
    attributes = {**nodes, **entries(leaves, "class", 3, 3), "classlabels_int64s": [4, 2, 9]}
    x = rows_of()
    model = model_of("TreeEnsembleClassifier", x, attributes)
    with core.load_network(model, "CPU") as network:
        wanted = [
            network.create_infer_request().infer_sync({"x": part}) for part in (x, x[:3], x[:5])
        ]
        whole = network.export()
    with core.import_network(whole) as imported:
        request = imported.create_infer_request()
        for part, right in zip((x, x[:3], x[:5]), wanted, strict=True):
            found = request.infer_sync({"x": part})
            np.testing.assert_array_equal(found["label"], right["label"])
            np.testing.assert_array_equal(found["scores"], right["scores"])


def tables_of() -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Return the operands of a kernel's call, and its parameters, of 40 rows."""
    nodes, leaves = trees(6, 9, 5, missing=True)
    attributes = {**nodes, **entries(leaves, "class", 3, 3), "classlabels_int64s": [4, 2, 9]}
    steps, _, _ = run_both("TreeEnsembleClassifier", rows_of(missing=True), attributes)
    (step,) = steps
    assert isinstance(step, NativeStep)
    arrays = []
    for operand in step.operands:
        array = np.zeros(operand.shape, operand.dtype.numpy)
        if operand.buffer.array is not None:
            start = operand.offset_bytes
            memory = operand.buffer.array[start : start + array.nbytes]
            array.reshape(-1).view(np.uint8)[:] = memory
        arrays.append(array)
    arrays[0][:] = rows_of(missing=True)
    return arrays, step.parameters


@pytest.mark.parametrize("seed", range(60))
def test_damaged_tables_are_found_or_do_no_harm(seed: int) -> None:
    arrays, parameters = tables_of()
    generator = np.random.default_rng(seed)
    for table in arrays[1:5]:
        flat = table.reshape(-1)
        for _ in range(int(generator.integers(1, 6))):
            number = int(generator.integers(-(1 << 31), 1 << 31))
            flat[generator.integers(len(flat))] = number >> int(generator.integers(32))
    steps = step_runner(open_engine())
    payload = [len(arrays), *(word for array in arrays for word in (0, array.ctypes.data))]
    words = [*payload, *parameters]
    kind = steps.kinds["tree_ensemble"]
    table = np.array([0, 0, 0, kind, 2 + len(words), *words, KIND_END, 2], np.int64)
    assert steps.run(table, (), 1) in (None, (1002, 0))
