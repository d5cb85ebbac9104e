"""Support vector machines equal REFERENCE's, which computes in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import Core

FEATURES = 5
OPSETS = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]


def model_of(op: str, attributes: dict[str, Any], dtype: int, label: int) -> Any:
    outputs = ["label", "scores"] if op == "SVMClassifier" else ["scores"]
    node = helper.make_node(op, ["x"], outputs, "machine", domain="ai.onnx.ml", **attributes)
    kinds = {"label": (label, ["rows"]), "scores": (TensorProto.FLOAT, ["rows", None])}
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", dtype, ["rows", FEATURES])],
        [helper.make_tensor_value_info(name, *kinds[name]) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def machine_of(classes: int, kernel: str, *, has_odds: bool = False) -> dict[str, Any]:
    random = np.random.default_rng(classes)
    sizes = [3 + place for place in range(classes)]
    pairs, total = classes * (classes - 1) // 2, sum(sizes)
    attributes = {
        "classlabels_ints": [7 * place - 3 for place in range(classes)],
        "coefficients": random.normal(size=(classes - 1) * total),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 3.0],
        "rho": random.normal(size=pairs),
        "support_vectors": random.normal(size=total * FEATURES),
        "vectors_per_class": sizes,
    }
    if has_odds:
        attributes["prob_a"] = -np.abs(random.normal(size=pairs)) - 0.5
        attributes["prob_b"] = random.normal(size=pairs)
    return attributes


def run_both(
    core: Core, op: str, attributes: dict[str, Any], x: np.ndarray
) -> tuple[list[dict[str, Any]], str]:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    model = model_of(op, attributes, kind, TensorProto.INT64).SerializeToString()
    found = []
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device) as network:
            found.append(network.create_infer_request().infer_sync({"x": x}))
            (node,) = network.runtime_graph().nodes
            implementation = node.metadata.get("implementation", "")
    return found, implementation


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("has_odds", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_classes(core: Core, kernel: str, classes: int, has_odds: bool, rows: int) -> None:
    x = np.random.default_rng(1).normal(size=(rows, FEATURES)).astype(np.float32)
    attributes = machine_of(classes, kernel, has_odds=has_odds)
    (wanted, found), implementation = run_both(core, "SVMClassifier", attributes, x)
    assert "native:vote_by_pairs" in implementation
    np.testing.assert_array_equal(found["label"], wanted["label"])
    scale = np.abs(wanted["scores"]).max()
    np.testing.assert_allclose(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_regressions(core: Core, kernel: str, one_class: int) -> None:
    random = np.random.default_rng(2)
    attributes = {
        "coefficients": random.normal(size=20),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 2.0],
        "n_supports": 20,
        "one_class": one_class,
        "rho": [0.4],
        "support_vectors": random.normal(size=20 * FEATURES),
    }
    x = random.normal(size=(33, FEATURES)).astype(np.float32)
    (wanted, found), implementation = run_both(core, "SVMRegressor", attributes, x)
    assert "numpy" not in implementation
    np.testing.assert_allclose(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-4)


def test_rows_of_other_types_and_other_scores_are_for_numpy(core: Core) -> None:
    x = np.random.default_rng(1).normal(size=(4, FEATURES))
    attributes = machine_of(3, "RBF")
    for given, changed in ((x, {}), (x.astype(np.float32), {"post_transform": "SOFTMAX"})):
        both = run_both(core, "SVMClassifier", {**attributes, **changed}, given)
        (wanted, found), implementation = both
        assert implementation == "numpy"
        np.testing.assert_array_equal(found["scores"], wanted["scores"])


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_may_be_texts(core: Core, classes: int) -> None:
    attributes = machine_of(classes, "RBF", has_odds=True)
    del attributes["classlabels_ints"]
    attributes["classlabels_strings"] = ["a", "b", "c"][:classes]
    x = np.random.default_rng(1).normal(size=(9, FEATURES)).astype(np.float32)
    model = model_of("SVMClassifier", attributes, TensorProto.FLOAT, TensorProto.STRING)
    found = []
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device, {"PERF_COUNT": True}) as network:
            request = network.create_infer_request()
            found.append(request.infer_sync({"x": x}))
            implementations = {node.op: node.implementation for node in request.profiling()}
    assert found[0]["label"].tolist() == found[1]["label"].tolist()
    np.testing.assert_allclose(found[1]["scores"], found[0]["scores"], atol=1e-5)
    assert implementations["ai.onnx.ml::SVMClassifier"] not in ("numpy", "python", "")
