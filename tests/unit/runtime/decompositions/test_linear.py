"""Linear models and scalers beside onnxruntime's, on devices that know ONNX's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.errors import ModelError

RANDOM = np.random.default_rng(3)
KINDS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
}


def floats(count: int) -> list[float]:
    return [float(item) for item in np.float32(RANDOM.normal(size=count))]


SCALING = {"offset": floats(4), "scale": floats(4)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "scaler": ("Scaler", SCALING),
    "scaler of one": ("Scaler", {"offset": [0.5], "scale": [2.0]}),
    "l1": ("Normalizer", {"norm": "L1"}),
    "l2": ("Normalizer", {"norm": "L2"}),
    "max": ("Normalizer", {"norm": "MAX"}),
    "regressor": (
        "LinearRegressor",
        {"coefficients": floats(8), "intercepts": floats(2), "targets": 2},
    ),
    "regressor without intercepts": ("LinearRegressor", {"coefficients": floats(4)}),
    **{
        f"{'regressor' if targets > 1 else 'regressor of one'}, {transform}": (
            "LinearRegressor",
            {
                "coefficients": floats(4 * targets),
                "intercepts": floats(targets),  # onnxruntime makes NaN of rows that are all 0
                "targets": targets,
                "post_transform": transform,
            },
        )
        for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
        for targets in (1, 2)
    },
    **{
        f"classifier, {transform}": (
            "LinearClassifier",
            {
                "coefficients": floats(12),
                "intercepts": floats(3),
                "classlabels_ints": [4, 7, 1],
                "post_transform": transform,
            },
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
    },
    "two classes of two rows": (
        "LinearClassifier",
        {
            "coefficients": floats(8),
            "intercepts": floats(2),
            "classlabels_ints": [3, 8],
            "post_transform": "LOGISTIC",
        },
    ),
    **{
        f"two classes of one row, {transform}": (
            "LinearClassifier",
            {
                "coefficients": floats(4),
                "intercepts": floats(1),
                "classlabels_ints": [3, 8],
                "post_transform": transform,
            },
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    },
}


def model_of(op_type: str, attributes: dict[str, Any], dtype: Any, rows: int | str) -> bytes:
    names = ["label", "y"] if op_type == "LinearClassifier" else ["y"]
    node = helper.make_node(op_type, ["x"], names, name="n", domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", KINDS[np.dtype(dtype)], [rows, 4])
    kinds = {"label": TensorProto.INT64}
    outputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None)
        for name in names
    ]
    graph = helper.make_graph([node], "g", [x], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


RUNS = [
    *((name, np.float32) for name in CASES),
    *(
        (name, dtype)
        for name in ("scaler", "l1", "max", "classifier, NONE", "classifier, SOFTMAX_ZERO")
        for dtype in (np.int64, np.int32, np.float64)
    ),
]


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize(("name", "dtype"), RUNS)
@pytest.mark.parametrize("rows", [6, "n"])
def test_as_onnxruntime_has_it(
    core: aioinfer.Core, name: str, dtype: Any, device: str, rows: int | str
) -> None:
    op_type, attributes = CASES[name]
    x = (np.random.default_rng(1).normal(size=(6, 4)) * 3).astype(dtype)
    x[2] = 0
    x[3] = -1 - np.abs(x[3])  # of which MAX is negative
    model = model_of(op_type, attributes, dtype, rows)
    wanted = onnxruntime.InferenceSession(model).run(None, {"x": x})
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync({"x": x})
    for array, right in zip(found.values(), wanted, strict=True):
        assert (array.dtype, array.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(array, right, atol=1e-5)


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("seed", range(4))
def test_the_greatest_of_a_row_with_nan_is_a_number(
    core: aioinfer.Core, device: str, seed: int
) -> None:
    specials = [np.nan, np.nan, np.inf, -np.inf, 0.0, 2.0, -3.0]
    x = np.random.default_rng(seed).choice(specials, (40, 4)).astype(np.float32)
    model = model_of("Normalizer", {"norm": "MAX"}, np.float32, "n")
    (wanted,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    with core.load_network(model, device) as network:
        made = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


def test_intercepts_that_are_not_one_for_each_row_are_refused(core: aioinfer.Core) -> None:
    attributes = {"coefficients": floats(4), "intercepts": floats(3), "targets": 1}
    model = model_of("LinearRegressor", attributes, np.float32, 2)
    with pytest.raises(ModelError, match=r"'n'.*3 intercepts are given for 1 rows"):
        core.read_model(model)


def test_labels_may_be_texts(core: aioinfer.Core) -> None:
    attributes = {"coefficients": floats(12), "classlabels_strings": ["a", "b", "c"]}
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", name="n", **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, None),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph([node], "g", [x], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    given = {"x": RANDOM.normal(size=(5, 4)).astype(np.float32)}
    with core.load_network(model, "REFERENCE") as network:
        found = network.create_infer_request().infer_sync(given)
    columns = np.reshape(attributes["coefficients"], (3, 4)).T
    right = np.array(["a", "b", "c"])[(given["x"] @ columns).argmax(axis=1)]
    assert found["label"].tolist() == right.tolist()
