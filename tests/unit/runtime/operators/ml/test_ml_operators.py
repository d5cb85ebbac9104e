"""Operators of ai.onnx.ml beside onnxruntime's: features, labels and support vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, Node, TensorType, Value
from aioinfer.runtime.operators import OperatorError, make_operator
from aioinfer.runtime.type_inference import ShapeContent
from aioinfer.runtime.type_inference.rules import find_rule

TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(object): TensorProto.STRING,
}
GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(40, 4)).astype(np.float32)
WHOLE = GENERATOR.integers(-3, 6, (40, 4))
TEXTS = np.array(["a", "b", "", "zz", "ü", "b"], object)


def computed(
    op_type: str, x: np.ndarray, attributes: dict[str, Any], count: int = 1, opset: int = 3
) -> tuple[Any, ...]:
    outputs = [Value(f"y{index}") for index in range(count)]
    given = {
        name: helper.get_attribute_value(helper.make_attribute(name, item))
        for name, item in attributes.items()
        if item
    }
    texts = {
        name: item.decode() if isinstance(item, bytes) else item for name, item in given.items()
    }
    for name, item in texts.items():
        if isinstance(item, list) and item and isinstance(item[0], bytes):
            texts[name] = [part.decode() for part in item]
    node = Node(op_type, [Value("x")], outputs, texts, name="n", domain="ai.onnx.ml")
    return make_operator(node, {"": 17, "ai.onnx.ml": opset})(x)


def by_onnxruntime(
    op_type: str, x: np.ndarray, attributes: dict[str, Any], kinds: list[int], opset: int = 3
) -> list[np.ndarray]:
    names = [f"y{index}" for index in range(len(kinds))]
    given = {name: item for name, item in attributes.items() if item}
    node = helper.make_node(op_type, ["x"], names, domain="ai.onnx.ml", **given)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TYPES[x.dtype], [None] * x.ndim)],
        [helper.make_tensor_value_info(*pair, None) for pair in zip(names, kinds, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return list(session.run(None, {"x": x}))


def assert_same(
    op_type: str,
    x: np.ndarray,
    kinds: list[int],
    attributes: dict[str, Any],
    *,
    opset: int = 3,
    atol: float = 1e-6,
) -> None:
    found = computed(op_type, x, attributes, len(kinds), opset)
    wanted = by_onnxruntime(op_type, x, attributes, kinds, opset)
    _assert_typed(op_type, x, attributes, found, kinds)
    for array, right, kind in zip(found, wanted, kinds, strict=True):
        assert array.shape == right.shape
        assert array.dtype == DType(kind).numpy
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=atol)
        else:
            np.testing.assert_array_equal(array, right)


def _assert_typed(
    op_type: str, x: np.ndarray, attributes: dict[str, Any], found: Any, kinds: list[int]
) -> None:
    """Hold what the type rule says, where there is one, against results."""
    node = Node(
        op_type,
        [Value("x", TensorType(DType.of(x.dtype), x.shape))],
        [Value(f"y{index}") for index in range(len(kinds))],
        {name: item for name, item in attributes.items() if item},
        name="n",
        domain="ai.onnx.ml",
    )
    rule = find_rule(node)
    types = None if rule is None else rule(node, ShapeContent())
    if types is not None:
        wanted = [TensorType(DType(kind), y.shape) for kind, y in zip(kinds, found, strict=True)]
        assert list(types) == wanted
    else:
        assert op_type in (
            "CategoryMapper",
            "LinearClassifier",
            "LinearRegressor",
            "Normalizer",
            "Scaler",
        )


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("x", [X, WHOLE, -np.abs(X), X.astype(np.float64), np.zeros_like(X)])
def test_rows_are_normalized(norm: str, x: np.ndarray) -> None:
    assert_same("Normalizer", x, [TensorProto.FLOAT], {"norm": norm})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_with_numbers_that_are_none_are_normalized(norm: str) -> None:
    specials = [np.nan, np.inf, -np.inf, 0.0, 2.0, -3.0]
    x = GENERATOR.choice(specials, (60, 3)).astype(np.float32)
    with np.errstate(all="ignore"):
        assert_same("Normalizer", x, [TensorProto.FLOAT], {"norm": norm})


@pytest.mark.parametrize("x", [X, WHOLE, X.astype(np.float64)], ids=str)
@pytest.mark.parametrize("numbers", [[0.5], [0.5, -1.0, 2.0, 0.0]])
def test_features_are_scaled(x: np.ndarray, numbers: list[float]) -> None:
    attributes = {"offset": numbers, "scale": [item + 3 for item in numbers]}
    assert_same("Scaler", x, [TensorProto.FLOAT], attributes)


@pytest.mark.parametrize("values", [[9.5], [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("old", [np.nan, 0.0, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_numbers_are_filled(values: list[float], old: float, dtype: Any) -> None:
    x = WHOLE.astype(dtype)
    x[::3, 1] = np.nan
    attributes = {"imputed_value_floats": values, "replaced_value_float": old}
    kind = TYPES[np.dtype(dtype)]
    (found,) = computed("Imputer", x, attributes)
    if dtype is np.float32:
        (wanted,) = by_onnxruntime("Imputer", x, attributes, [kind])
        np.testing.assert_array_equal(found, wanted)
    assert found.dtype == dtype
    assert not np.isnan(found).any() or not np.isnan(old)


def test_missing_whole_numbers_are_filled() -> None:
    attributes = {"imputed_value_int64s": [7, 8, 9, 10], "replaced_value_int64": 2}
    assert_same("Imputer", WHOLE, [TensorProto.INT64], attributes)


@pytest.mark.parametrize("x", [WHOLE, WHOLE.astype(np.float32), WHOLE[0]], ids=["2d", "f32", "1d"])
def test_categories_of_numbers_become_ones(x: np.ndarray) -> None:
    attributes = {"cats_int64s": [3, -1, 0, 5], "zeros": 1}
    assert_same("OneHotEncoder", x, [TensorProto.FLOAT], attributes)


def test_categories_of_strings_become_ones() -> None:
    attributes = {"cats_strings": ["b", "zz", "c"], "zeros": 1}
    assert_same("OneHotEncoder", TEXTS, [TensorProto.FLOAT], attributes)


def test_an_element_without_a_category_is_an_error_where_zeros_are_not_allowed() -> None:
    node = Node(
        "OneHotEncoder",
        [Value("x")],
        [Value("y")],
        {"cats_int64s": [1], "zeros": 0},
        name="n",
        domain="ai.onnx.ml",
    )
    encode = make_operator(node, {"": 17, "ai.onnx.ml": 3})
    assert encode(np.array([1, 1]))[0].tolist() == [[1.0], [1.0]]
    with pytest.raises(ValueError, match="none of 1 categories"):
        encode(np.array([1, 2]))


LABELS: dict[str, tuple[np.ndarray, int, dict[str, Any]]] = {
    "strings to numbers": (
        TEXTS,
        TensorProto.INT64,
        {"keys_strings": ["a", "ü", "b"], "values_int64s": [4, 5, 6], "default_int64": -7},
    ),
    "numbers to strings": (
        WHOLE,
        TensorProto.STRING,
        {"keys_int64s": [5, 1, -2], "values_strings": ["x", "y", "z"], "default_string": "none"},
    ),
    "numbers to floats": (
        WHOLE,
        TensorProto.FLOAT,
        {"keys_int64s": [5, 1, -2], "values_floats": [0.1, 0.2, 0.3], "default_float": 0.5},
    ),
    "floats to numbers": (
        np.array([0.1, np.nan, 0.3, np.inf, -0.0], np.float32),
        TensorProto.INT64,
        {"keys_floats": [0.1, 0.0, np.inf], "values_int64s": [1, 2, 3]},
    ),
    "strings to strings": (
        TEXTS,
        TensorProto.STRING,
        {"keys_strings": ["a", "b"], "values_strings": ["b", "a"]},
    ),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_are_encoded(case: str) -> None:
    x, kind, attributes = LABELS[case]
    assert_same("LabelEncoder", x, [kind], attributes)


@pytest.mark.parametrize("x", [TEXTS, WHOLE], ids=["strings", "numbers"])
def test_the_first_version_of_labels_has_places_of_strings_and_strings_at_places(
    x: np.ndarray,
) -> None:
    kind = TensorProto.INT64 if x.dtype == object else TensorProto.STRING
    attributes = {"classes_strings": ["b", "ü"], "default_int64": 7, "default_string": "?"}
    assert_same("LabelEncoder", x, [kind], attributes, opset=1)
    assert_same("LabelEncoder", x, [kind], {"classes_strings": ["ü"]}, opset=1)


def test_labels_of_tensors_are_encoded() -> None:
    node = Node(
        "LabelEncoder",
        [Value("x")],
        [Value("y")],
        {
            "keys_tensor": np.array([2.0, np.nan]),
            "values_tensor": np.array([7, 8], np.int16),
            "default_tensor": np.array([-1], np.int16),
        },
        name="n",
        domain="ai.onnx.ml",
    )
    (found,) = make_operator(node, {"": 21, "ai.onnx.ml": 4})(np.array([np.nan, 2.0, 3.0]))
    assert found.dtype == np.int16
    assert found.tolist() == [8, 7, -1]


@pytest.mark.parametrize("x", [TEXTS, WHOLE], ids=["strings", "numbers"])
def test_categories_are_mapped_both_ways(x: np.ndarray) -> None:
    attributes = {"cats_int64s": [3, -1, 0], "cats_strings": ["b", "ü", "c"]}
    kind = TensorProto.INT64 if x.dtype == object else TensorProto.STRING
    assert_same("CategoryMapper", x, [kind], attributes)


KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vectors_regress(kernel: str, one_class: int) -> None:
    generator = np.random.default_rng(6)
    attributes = {
        "coefficients": generator.normal(size=7).astype(np.float32).tolist(),
        "support_vectors": generator.normal(size=28).astype(np.float32).tolist(),
        "n_supports": 7,
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0],
        "rho": [0.1],
        "one_class": one_class,
    }
    assert_same("SVMRegressor", X, [TensorProto.FLOAT], attributes, atol=1e-4)


def test_a_linear_machine_regresses() -> None:
    attributes = {"coefficients": [0.5, -1.0, 2.0, 0.25], "rho": [0.1], "kernel_params": [0.0] * 3}
    assert_same("SVMRegressor", X, [TensorProto.FLOAT], attributes)


def machine(classes: int, kernel: str, *, has_odds: bool, is_positive: bool) -> dict[str, Any]:
    generator = np.random.default_rng(classes)
    groups = [3, 2, 4, 5][:classes]
    pairs = classes * (classes - 1) // 2
    weights = generator.normal(size=(classes - 1) * sum(groups))
    made: dict[str, Any] = {
        "coefficients": (np.abs(weights) if is_positive else weights).astype(np.float32).tolist(),
        "support_vectors": generator.normal(size=4 * sum(groups)).astype(np.float32).tolist(),
        "vectors_per_class": groups,
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0],
        "rho": generator.normal(size=pairs).astype(np.float32).tolist(),
    }
    if has_odds:
        made["prob_a"] = (-np.abs(generator.normal(size=pairs)) / 9).astype(np.float32).tolist()
        made["prob_b"] = generator.normal(size=pairs).astype(np.float32).tolist()
    return made


@pytest.mark.parametrize("has_odds", [False, True])
@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
def test_support_vectors_classify(
    kernel: str, classes: int, transform: str, is_positive: bool, has_odds: bool
) -> None:
    attributes = machine(classes, kernel, has_odds=has_odds, is_positive=is_positive)
    attributes["classlabels_ints"] = [7, -2, 4, 1][:classes]
    attributes["post_transform"] = transform
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    assert_same("SVMClassifier", X, kinds, attributes, atol=1e-3 if has_odds else 1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_support_vectors_classify_into_strings(classes: int, dtype: Any) -> None:
    attributes = machine(classes, "RBF", has_odds=True, is_positive=False)
    attributes["classlabels_strings"] = ["a", "b", "c"][:classes]
    kinds = [TensorProto.STRING, TensorProto.FLOAT]
    assert_same("SVMClassifier", WHOLE.astype(dtype), kinds, attributes, atol=1e-3)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "PROBIT"])
@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_linear_machine_classifies(classes: int, is_positive: bool, transform: str) -> None:
    weights = np.random.default_rng(8).normal(size=4 * classes).astype(np.float32)
    attributes = {
        "coefficients": (np.abs(weights) if is_positive else weights).tolist(),
        "classlabels_ints": [5, 6, 7][:classes],
        "rho": [0.25],
        "kernel_params": [0.0] * 3,
        "post_transform": transform,
    }
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    # onnxruntime takes quantiles in float32.
    atol = 1e-4 if transform == "PROBIT" else 1e-6
    assert_same("SVMClassifier", X, kinds, attributes, atol=atol)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 2}),
        ("SVMRegressor", {"coefficients": [1.0], "kernel_type": "LINEAR"}),
        ("SVMClassifier", {"coefficients": [1.0], "vectors_per_class": [1], "rho": [0.0]}),
        ("SVMClassifier", {"coefficients": [1.0, 2.0, 3.0], "classlabels_ints": [1, 2]}),
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [1]}),
    ],
    ids=str,
)
def test_lists_that_do_not_fit_are_refused(op_type: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match="its attributes are refused"):
        computed(op_type, X, attributes)


def test_rows_of_other_features_are_refused() -> None:
    attributes = {"coefficients": [0.5, -1.0], "rho": [0.1]}
    with pytest.raises(ValueError, match="2 features are wanted"):
        computed("SVMRegressor", X, attributes)


def test_no_rows() -> None:
    attributes = machine(3, "RBF", has_odds=True, is_positive=False)
    attributes["classlabels_ints"] = [1, 2, 3]
    labels, scores = computed("SVMClassifier", X[:0], attributes, 2)
    assert (labels.shape, scores.shape) == ((0,), (0, 3))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize(("rows", "labels"), [(1, 2), (3, 3), (2, 2)])
@pytest.mark.parametrize("x", [X, WHOLE, X.astype(np.float64)], ids=["f32", "i64", "f64"])
def test_linear_models_classify(x: np.ndarray, rows: int, labels: int, transform: str) -> None:
    if (rows, transform) == (1, "PROBIT"):
        return  # onnxruntime leaves a column as it finds it
    generator = np.random.default_rng(rows)
    attributes = {
        "coefficients": (generator.normal(size=4 * rows) / 9).astype(np.float32).tolist(),
        "intercepts": generator.random(rows).astype(np.float32).tolist(),
        "classlabels_ints": [5, 6, 7][:labels],
        "post_transform": transform,
    }
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    atol = 1e-4 if transform == "PROBIT" else 1e-5
    assert_same("LinearClassifier", x, kinds, attributes, atol=atol)


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_models_regress(targets: int) -> None:
    coefficients = np.random.default_rng(2).normal(size=4 * targets).astype(np.float32).tolist()
    attributes = {"coefficients": coefficients, "targets": targets, "intercepts": [0.5] * targets}
    assert_same("LinearRegressor", X, [TensorProto.FLOAT], attributes)


def pipeline() -> Any:
    """Write what a pipeline of scikit-learn becomes: numbers and categories, joined, classified."""
    made = helper.make_node
    machine_of = machine(3, "RBF", has_odds=True, is_positive=False)
    machine_of.update(classlabels_ints=[1, 2, 3], support_vectors=[0.1 * n for n in range(72)])
    nodes = [
        made(
            "Imputer",
            ["x"],
            ["a"],
            domain="ai.onnx.ml",
            imputed_value_floats=[0.5],
            replaced_value_float=float("nan"),
        ),
        made("ArrayFeatureExtractor", ["a", "places"], ["b"], domain="ai.onnx.ml"),
        made("OneHotEncoder", ["c"], ["d"], domain="ai.onnx.ml", cats_int64s=[0, 1, 2], zeros=1),
        made("Reshape", ["d", "flat"], ["e"]),
        made("Binarizer", ["b"], ["f"], domain="ai.onnx.ml", threshold=0.2),
        made(
            "FeatureVectorizer",
            ["b", "e", "f"],
            ["g"],
            domain="ai.onnx.ml",
            inputdimensions=[2, 3, 3],
        ),
        made("SVMClassifier", ["g"], ["h", "scores"], domain="ai.onnx.ml", **machine_of),
        made(
            "LabelEncoder",
            ["h"],
            ["label"],
            domain="ai.onnx.ml",
            keys_int64s=[1, 2, 3],
            values_int64s=[30, 20, 10],
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "pipeline",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("c", TensorProto.INT64, ["n", 1]),
        ],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3]),
        ],
        [
            numpy_helper.from_array(np.array([3, 1]), "places"),
            numpy_helper.from_array(np.array([-1, 3]), "flat"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_a_pipeline_runs_on_one_device(core: Core, device: str) -> None:
    given = {"x": X.copy(), "c": WHOLE[:, :1]}
    given["x"][3] = np.nan
    session = onnxruntime.InferenceSession(pipeline())
    with core.load_network(pipeline(), device) as network:
        request = network.create_infer_request()
        for count in (40, 1, 7):
            part = {name: array[:count] for name, array in given.items()}
            found = request.infer_sync(part)
            label, scores = session.run(None, part)
            np.testing.assert_array_equal(found["label"], label)
            np.testing.assert_allclose(found["scores"], scores, atol=1e-4)


def test_features_that_are_not_there_are_a_wrong_input(core: Core) -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], "pick", domain="ai.onnx.ml")
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", ports, [out])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with core.load_network(model, "CPU") as network:
        request = network.create_infer_request()
        for wrong in ([0, 3], [-1, 0]):
            with pytest.raises(TensorError, match="of 3 elements"):
                request.infer_sync({"x": np.ones((2, 3), np.float32), "i": np.array(wrong)})
