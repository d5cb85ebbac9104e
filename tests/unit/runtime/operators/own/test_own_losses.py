"""Losses of classification: as onnx.reference computes them, and where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator


def evaluate(op_type: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    names = [Value(f"x{index}") for index in range(len(inputs))]
    made = [Value(f"y{index}") for index in range(outputs)]
    return make_operator(Node(op_type, names, made, attributes, name="n"), {"": 26})(*inputs)


def test_a_loss_is_right_where_softmax_vanishes() -> None:
    scores = np.array([[0, 200], [1, 1]], np.float32)
    loss, logs = evaluate(
        "SoftmaxCrossEntropyLoss", scores, np.array([0, 1]), outputs=2, reduction="none"
    )
    np.testing.assert_allclose(loss, [200, np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(logs, [[-200, 0], [-np.log(2)] * 2], rtol=1e-6)


@pytest.mark.parametrize("op_type", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize("ignore_index", [None, 1, -7])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (2, 4, 3, 2)])
def test_losses_are_those_of_onnx(
    op_type: str, reduction: str, is_weighted: bool, ignore_index: int | None, shape: Any
) -> None:
    onnx_helper = pytest.importorskip("onnx.helper")
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    state = np.random.default_rng(3)
    scores = state.normal(size=shape).astype(np.float32)
    labels = state.integers(0, 4, (shape[0], *shape[2:]))
    labels.flat[0] = 2
    attributes: dict[str, Any] = {"reduction": reduction}
    if ignore_index is not None:
        attributes["ignore_index"] = ignore_index
        labels.flat[1] = ignore_index
    inputs = [scores, labels]
    if is_weighted:
        inputs.append(state.random(4).astype(np.float32))
    names = [f"x{index}" for index in range(len(inputs))]
    node = onnx_helper.make_node(op_type, names, ["y"], **attributes)
    (wanted,) = evaluator(node).run(None, dict(zip(names, inputs, strict=True)))
    (made,) = evaluate(op_type, *inputs, **attributes)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


@pytest.mark.parametrize("label", [-1, 4, 2**40])
def test_labels_that_are_no_classes_are_refused_unless_ignored(label: int) -> None:
    scores, labels = np.zeros((2, 4), np.float32), np.array([0, label])
    with pytest.raises(ValueError, match="from 0 to 3"):
        evaluate("SoftmaxCrossEntropyLoss", scores, labels)
    (made,) = evaluate("SoftmaxCrossEntropyLoss", scores, labels, ignore_index=label)
    np.testing.assert_allclose(made, np.log(4), rtol=1e-6)


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="are not those of"):
        evaluate("NegativeLogLikelihoodLoss", np.zeros((2, 4), np.float32), np.zeros(3, np.int64))
