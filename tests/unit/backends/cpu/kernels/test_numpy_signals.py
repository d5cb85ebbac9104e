"""Operators of pictures, signals and texts that numpy computes on CPU give what REFERENCE gives."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import Core
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of

node = helper.make_node
RNG = np.random.default_rng(0)

Case = tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]
"""What a run is given, what the model holds, and attributes; inputs stand in that order."""


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES: dict[str, Case] = {
    "AffineGrid": ({"x": drawn(2, 2, 3)}, {"s": np.array([2, 1, 3, 4])}, {"align_corners": 1}),
    "BitCast": ({"x": numbers(2, 3)}, {}, {"to": TensorProto.INT32}),
    "BlackmanWindow": ({}, {"s": np.array(9)}, {"periodic": 0}),
    "CenterCropPad": ({"x": numbers(5, 4)}, {"s": np.array([3, 7])}, {}),
    "Col2Im": (
        {"x": drawn(1, 12, 9)},
        {"i": np.array([4, 4]), "b": np.array([2, 2])},
        {},
    ),
    "CumProd": ({"x": drawn(3, 4)}, {"a": np.array(1)}, {"exclusive": 1}),
    "Det": ({"x": drawn(5, 3, 3)}, {}, {}),
    "HammingWindow": ({}, {"s": np.array(8)}, {}),
    "HannWindow": ({}, {"s": np.array(8)}, {"output_datatype": TensorProto.DOUBLE}),
    "Hardmax": ({"x": drawn(3, 5)}, {}, {"axis": 0}),
    "LpNormalization": ({"x": drawn(3, 5)}, {}, {"p": 1, "axis": 0}),
    "MaxUnpool": (
        {"x": numbers(1, 1, 2, 2), "i": np.array([[[[5, 7], [13, 15]]]])},
        {},
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "MelWeightMatrix": (
        {},
        {
            "n": np.array(8),
            "l": np.array(32),
            "r": np.array(8000),
            "low": np.array(0, np.float32),
            "high": np.array(4000, np.float32),
        },
        {},
    ),
    "STFT": (
        {"x": drawn(2, 64, 1), "w": drawn(16)},
        {"s": np.array(8)},
        {"onesided": 1},
    ),
    "TfIdfVectorizer": (
        {"x": RNG.integers(0, 6, (2, 9))},
        {},
        {
            "max_gram_length": 2,
            "min_gram_length": 1,
            "max_skip_count": 1,
            "mode": "IDF",
            "ngram_counts": [0, 3],
            "ngram_indexes": [0, 1, 2, 3, 4],
            "pool_int64s": [1, 2, 3, 1, 2, 4, 5],
            "weights": [1.0, 0.5, 2.0, 1.0, 3.0],
        },
    ),
}
ORDERS = {"STFT": ["x", "s", "w"]}
OPSETS = {"BitCast": 26, "CumProd": 26}


@pytest.mark.parametrize("op", sorted(CASES))
@pytest.mark.parametrize("is_open", [False, True])
def test_same_as_reference(core: Core, op: str, is_open: bool) -> None:
    given, constants, attributes = CASES[op]
    names = ORDERS.get(op, [*given, *constants])
    nodes = [node(op, names, ["made"], **attributes), node("Identity", ["made"], ["y"])]
    inputs = given
    if not given:  # else all of it is a constant
        inputs = {"one": np.ones((1,), np.float32)}
        nodes = [
            node(op, names, ["made"], **attributes),
            node("CastLike", ["made", "one"], ["cast"]),
            node("Add", ["cast", "one"], ["y"]),
        ]
    model = model_of(nodes, inputs, ["y"], constants, dynamic=is_open)
    model.opset_import[0].version = OPSETS.get(op, model.opset_import[0].version)
    assert_same_as_reference(core, model, inputs)
    answers = core.query_network(model, "CPU")
    if given:
        assert "numpy" in {answer.implementation for answer in answers.values()}
