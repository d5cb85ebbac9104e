"""Ensembles of trees beside onnxruntime's, for trees that nobody has trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.errors import AioInferError
from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import OperatorError, make_operator
from aioinfer.runtime.operators.plain_operators import find_plain

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
FEATURES = 5
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
}


def trees(
    seed: int, count: int, depth: int, modes: tuple[str, ...] = MODES, *, missing: bool = False
) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """Draw trees whose thresholds are whole numbers, so that values meet them; and their leaves."""
    generator = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int]] = []

    def grow(tree: int, left: int) -> int:
        number = sum(1 for row in rows if row[0] == tree)
        place = len(rows)
        if left == 0 or generator.random() < 0.15:
            rows.append((tree, number, 0, "LEAF", 0.0, 0, 0, 0))
            leaves.append((tree, number))
            return number
        rows.append(())
        rows[place] = (tree, number, 0, "LEAF", 0.0, 0, 0, 0)
        yes, no = grow(tree, left - 1), grow(tree, left - 1)
        rows[place] = (
            *(tree, number, int(generator.integers(FEATURES))),
            f"BRANCH_{generator.choice(list(modes))}",
            *(float(generator.integers(-3, 4)), yes, no),
            int(missing and generator.integers(2)),
        )
        return number

    for tree in range(count):
        grow(tree, depth)
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = [list(column) for column in zip(*rows, strict=True)]
    nodes = {f"nodes_{name}": column for name, column in zip(names, columns, strict=False)}
    if missing:
        nodes["nodes_missing_value_tracks_true"] = columns[7]
    return nodes, leaves


def entries(leaves: list[tuple[int, int]], kind: str, targets: int, seed: int) -> dict[str, Any]:
    """Give each leaf a weight for one target, and every third one for another, too."""
    generator = np.random.default_rng(seed)
    every, ids = list(leaves), [at % targets for at in range(len(leaves))]
    if targets > 1:
        every += leaves[::3]
        ids += [(item + 1) % targets for item in ids[::3]]
    return {
        f"{kind}_treeids": [tree for tree, _ in every],
        f"{kind}_nodeids": [node for _, node in every],
        f"{kind}_ids": ids,
        f"{kind}_weights": [float(item) for item in np.float32(generator.normal(size=len(every)))],
    }


def model_of(op_type: str, x: np.ndarray, attributes: dict[str, Any]) -> bytes:
    is_classifier = op_type == "TreeEnsembleClassifier"
    names = ["label", "scores"] if is_classifier else ["scores"]
    node = helper.make_node(op_type, ["x"], names, name="n", domain="ai.onnx.ml", **attributes)
    inputs = [helper.make_tensor_value_info("x", TYPES[x.dtype], [None, x.shape[1]])]
    is_text = "classlabels_strings" in attributes
    kinds = {"label": TensorProto.STRING if is_text else TensorProto.INT64}
    outputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None)
        for name in names
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


def rows_of(dtype: Any = np.float32, *, missing: bool = False, count: int = 40) -> np.ndarray:
    generator = np.random.default_rng(9)
    x = generator.integers(-4, 5, (count, FEATURES)).astype(dtype)
    if missing:
        x[generator.random(x.shape) < 0.2] = np.nan
    return x


def assert_as_onnxruntime(
    core: aioinfer.Core, op_type: str, x: np.ndarray, attributes: Any
) -> None:
    model = model_of(op_type, x, attributes)
    wanted = onnxruntime.InferenceSession(model).run(None, {"x": x})
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device) as network:
            found = network.create_infer_request().infer_sync({"x": x})
        for array, right in zip(found.values(), wanted, strict=True):
            assert array.shape == right.shape
            if right.dtype.kind == "f":
                np.testing.assert_allclose(array, right, atol=1e-5)
            else:
                np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("op_type", ["TreeEnsembleRegressor", "TreeEnsembleClassifier"])
def test_old_forms_are_found_without_onnx(op_type: str) -> None:
    nodes, _ = trees(3, 2, 2, missing=True)

    def is_plain(version: int, **more: Any) -> bool:
        given = {**nodes, **more}
        node = Node(op_type, [Value("x")], [Value("y")], given, name="n", domain="ai.onnx.ml")
        return find_plain(node, {"ai.onnx.ml": version}) is not None

    assert is_plain(1)
    assert not is_plain(1, nodes_odd=[1])
    values = np.zeros(3)
    assert [is_plain(version, nodes_values_as_tensor=values) for version in (1, 3)] == [False, True]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("modes", [(mode,) for mode in MODES] + [MODES], ids=str)
def test_regression(
    core: aioinfer.Core, aggregate: str, targets: int, modes: tuple[str, ...]
) -> None:
    nodes, leaves = trees(1, 7, 5, modes)
    said = entries(leaves, "target", targets, 2)
    attributes = {**nodes, **said, "n_targets": targets, "aggregate_function": aggregate}
    assert_as_onnxruntime(core, "TreeEnsembleRegressor", rows_of(), attributes)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_leaves_that_say_something_twice(core: aioinfer.Core, aggregate: str, targets: int) -> None:
    nodes, leaves = trees(7, 5, 4)
    said = entries([*leaves, *leaves[::2], *leaves[1::3]], "target", 1, 5)
    attributes = {**nodes, **said, "n_targets": targets, "aggregate_function": aggregate}
    assert_as_onnxruntime(core, "TreeEnsembleRegressor", rows_of(), attributes)


def test_a_single_class_of_which_leaves_speak_twice(core: aioinfer.Core) -> None:
    nodes, leaves = trees(7, 5, 4)
    said = entries([*leaves, *leaves[::2]], "class", 1, 5)
    attributes = {**nodes, **said, "classlabels_int64s": [3]}
    assert_as_onnxruntime(core, "TreeEnsembleClassifier", rows_of(), attributes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_types_of_rows(core: aioinfer.Core, dtype: Any) -> None:
    nodes, leaves = trees(3, 4, 4, ("LEQ",))
    said = entries(leaves, "class", 3, 2)
    attributes = {**nodes, **said, "classlabels_int64s": [0, 1, 2], "base_values": [0.5] * 3}
    assert_as_onnxruntime(core, "TreeEnsembleClassifier", rows_of(dtype), attributes)


@pytest.mark.parametrize("missing", [False, True])
def test_missing_values_go_where_nodes_say(core: aioinfer.Core, missing: bool) -> None:
    nodes, leaves = trees(4, 6, 5, missing=missing)
    attributes = {**nodes, **entries(leaves, "target", 1, 2), "n_targets": 1}
    assert_as_onnxruntime(core, "TreeEnsembleRegressor", rows_of(missing=True), attributes)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [[], [0.1, -0.2, 0.3]])
@pytest.mark.parametrize("labels", ["classlabels_int64s", "classlabels_strings"])
def test_several_classes(core: aioinfer.Core, transform: str, base: Any, labels: str) -> None:
    nodes, leaves = trees(5, 6, 4)
    names = [4, 2, 9] if labels == "classlabels_int64s" else ["a", "b", "c"]
    attributes = {
        **nodes,
        **entries(leaves, "class", 3, 3),
        labels: names,
        "post_transform": transform,
    }
    if base:
        attributes["base_values"] = base
    assert_as_onnxruntime(core, "TreeEnsembleClassifier", rows_of(), attributes)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("base", [[], [0.1], [0.1, 0.25]])
@pytest.mark.parametrize("labels", [[5, 7], [3], ["no", "yes"]])
def test_leaves_of_one_class(
    core: aioinfer.Core, transform: str, is_positive: bool, base: Any, labels: list[Any]
) -> None:
    if len(base) > len(labels):
        return
    nodes, leaves = trees(6, 3, 4)
    said = entries(leaves, "class", 1, 4)
    if is_positive:
        said["class_weights"] = [abs(item) / 4 for item in said["class_weights"]]
    kind = "classlabels_int64s" if isinstance(labels[0], int) else "classlabels_strings"
    attributes = {**nodes, **said, kind: labels, "post_transform": transform}
    if base:
        attributes["base_values"] = base
    assert_as_onnxruntime(core, "TreeEnsembleClassifier", rows_of(), attributes)


def test_trees_whose_labels_are_texts_are_planned(core: aioinfer.Core) -> None:
    nodes, leaves = trees(5, 6, 4)
    said = entries(leaves, "class", 3, 3)
    attributes = {**nodes, **said, "classlabels_strings": ["a", "b", "c"]}
    model = model_of("TreeEnsembleClassifier", rows_of(), attributes)
    with core.load_network(model, "CPU", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync({"x": rows_of()})
        implementations = {node.op: node.implementation for node in request.profiling()}
    assert implementations["ai.onnx.ml::TreeEnsembleClassifier"].startswith("native:")


def test_no_rows(core: aioinfer.Core) -> None:
    nodes, leaves = trees(7, 3, 3)
    attributes = {**nodes, **entries(leaves, "class", 3, 3), "classlabels_int64s": [0, 1, 2]}
    model = model_of("TreeEnsembleClassifier", rows_of(), attributes)
    with core.load_network(model, "REFERENCE") as network:
        found = network.create_infer_request().infer_sync({"x": rows_of(count=0)})
    assert (found["label"].shape, found["scores"].shape) == ((0,), (0, 3))


def test_a_feature_that_rows_do_not_have_is_an_error(core: aioinfer.Core) -> None:
    nodes, leaves = trees(8, 3, 5)
    attributes = {**nodes, **entries(leaves, "target", 1, 2), "n_targets": 1}
    x = rows_of()[:, :2]
    with (
        core.load_network(model_of("TreeEnsembleRegressor", x, attributes), "REFERENCE") as network,
        pytest.raises(AioInferError, match="asks for feature 4 of 2"),
    ):
        network.create_infer_request().infer_sync({"x": x})


STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("threshold", [0.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("mode", MODES)
def test_thresholds_and_values_that_are_not_finite(
    core: aioinfer.Core, mode: str, threshold: float, missing: int
) -> None:
    asked = {"nodes_modes": [f"BRANCH_{mode}", "LEAF", "LEAF"], "nodes_values": [threshold, 0, 0]}
    attributes = {**STUMP, **asked, "nodes_missing_value_tracks_true": [missing, 0, 0]}
    x = np.array([[np.nan], [0.5], [1], [0], [np.inf], [-np.inf]], np.float32)
    assert_as_onnxruntime(core, "TreeEnsembleRegressor", x, {**attributes, "n_targets": 1})


# A set of categories as LightGBM's converter writes one: questions that lead to one node.
CATEGORIES: dict[str, Any] = {
    "nodes_treeids": [0] * 7,
    "nodes_nodeids": list(range(7)),
    "nodes_featureids": [0, 0, 0, 1, 0, 0, 0],
    "nodes_modes": [*["BRANCH_EQ"] * 3, "BRANCH_LEQ", *["LEAF"] * 3],
    "nodes_values": [1.0, 4.0, 7.0, 0.5, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [3, 3, 3, 4, 0, 0, 0],
    "nodes_falsenodeids": [1, 2, 6, 5, 0, 0, 0],
    "target_treeids": [0, 0, 0],
    "target_nodeids": [4, 5, 6],
    "target_ids": [0, 0, 0],
    "target_weights": [1.0, 2.0, 4.0],
}


def test_questions_that_lead_to_one_node(core: aioinfer.Core) -> None:
    x = np.array([[at % 9, at % 2] for at in range(18)], np.float32)
    assert_as_onnxruntime(core, "TreeEnsembleRegressor", x, {**CATEGORIES, "n_targets": 1})


def test_questions_that_lead_to_one_node_and_back_are_refused() -> None:
    following = {"nodes_falsenodeids": [1, 2, 6, 1, 0, 0, 0]}
    node = Node(
        "TreeEnsembleRegressor",
        [Value("x")],
        [Value("y")],
        {**CATEGORIES, **following},
        name="n",
        domain="ai.onnx.ml",
    )
    with pytest.raises(OperatorError, match="back to one of its nodes"):
        make_operator(node, {"": 21, "ai.onnx.ml": 3})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "back to one of its nodes"),
        ({"nodes_falsenodeids": [7, 0, 0]}, "tree 0 has no node 7"),
        ({"nodes_nodeids": [0, 1, 1]}, "the same number"),
        ({"nodes_values": [0.5]}, "differ in length"),
        ({"nodes_featureids": [-1, 0, 0]}, "below zero"),
        ({"target_nodeids": [1, 9]}, "has no node 9"),
        ({"target_ids": [0, 3]}, "targets beyond 1"),
        ({"target_weights": [1.0]}, "differ in length"),
        ({"base_values": [1.0, 2.0]}, "2 base values"),
    ],
    ids=str,
)
def test_trees_that_are_none_are_refused(wrong: dict[str, Any], text: str) -> None:
    node = Node(
        "TreeEnsembleRegressor",
        [Value("x")],
        [Value("y")],
        {**STUMP, **wrong},
        name="n",
        domain="ai.onnx.ml",
    )
    with pytest.raises(OperatorError, match=text):
        make_operator(node, {"": 21, "ai.onnx.ml": 3})


def member_trees(dtype: Any) -> dict[str, Any]:
    """Make two trees of the new form, the second of which asks for a set of members."""
    return {
        "nodes_splits": np.array([1, 0, 0, -1], dtype),
        "nodes_featureids": [0, 1, 2, 1],
        "nodes_modes": np.array([0, 6, 6, 3], np.uint8),
        "nodes_truenodeids": [0, 1, 2, 3],
        "nodes_falsenodeids": [1, 2, 3, 4],
        "nodes_trueleafs": [1, 1, 1, 1],
        "nodes_falseleafs": [0, 1, 0, 1],
        "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": np.array([5, 7, 11, 13, 17], dtype),
        "membership_values": np.array([2, -3, np.nan, 1, np.nan], dtype),
        "tree_roots": [0, 2],
        "n_targets": 2,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_new_form_and_its_sets(dtype: Any) -> None:
    node = Node(
        "TreeEnsemble",
        [Value("x")],
        [Value("y")],
        member_trees(dtype),
        name="n",
        domain="ai.onnx.ml",
    )
    x = np.array([[1, 9, 1], [2, -3, 0], [2, 4, 0], [2, 2, 1], [2, -1, 3]], dtype)
    (found,) = make_operator(node, {"": 23, "ai.onnx.ml": 5})(x)
    assert found.dtype == dtype
    first = [[5, 0], [0, 7], [11, 0], [0, 7], [11, 0]]
    second = [[11, 0], [17, 0], [0, 13], [11, 0], [17, 0]]
    np.testing.assert_array_equal(found, np.add(first, second))


@pytest.mark.parametrize(
    "wrong",
    [{"aggregate_function": -1}, {"post_transform": -2}, {"nodes_trueleafs": [1]}],
    ids=str,
)
def test_attributes_of_the_new_form_that_say_nothing_are_refused(wrong: dict[str, Any]) -> None:
    attributes = {**member_trees(np.float32), **wrong}
    node = Node(
        "TreeEnsemble", [Value("x")], [Value("y")], attributes, name="n", domain="ai.onnx.ml"
    )
    with pytest.raises(OperatorError, match=r"no function -|differ in length"):
        make_operator(node, {"": 23, "ai.onnx.ml": 5})
