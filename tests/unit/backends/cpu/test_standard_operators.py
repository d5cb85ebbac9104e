"""Operators that CPU computes as what they are made of, beside onnxruntime and REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.errors import TensorError
from exhaustive import drawn
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import model_of, run

Inputs = dict[str, np.ndarray]
LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


def single(op: str, inputs: Inputs, outputs: int = 1, **attributes: Any) -> Any:
    names = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, [*inputs], names, name="node", **attributes)
    return model_of([node], inputs, tuple(names), opset=17)


@st.composite
def losses(draw: st.DrawFn) -> tuple[Any, Inputs]:
    op, reduction = draw(st.sampled_from(LOSSES)), draw(st.sampled_from(["none", "mean", "sum"]))
    batch, classes = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    lengths = draw(st.lists(st.integers(1, 4), max_size=3))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = chance.standard_normal((batch, classes, *lengths)).astype(np.float32)
    kind = draw(st.sampled_from([np.int64, np.int32]))
    labels = chance.integers(0, classes, (batch, *lengths)).astype(kind)
    attributes: dict[str, Any] = {"reduction": reduction}
    if draw(st.booleans()):
        attributes["ignore_index"] = ignored = draw(st.sampled_from([-1, -100, 0, 255]))
        labels.reshape(-1)[1:][chance.random(labels.size - 1) < 0.4] = ignored
        if ignored == 0:
            labels.reshape(-1)[0] = classes - 1
    inputs = {"x": x, "labels": labels}
    if draw(st.booleans()):
        inputs["weights"] = chance.uniform(0.1, 2, classes).astype(np.float32)
    outputs = draw(st.integers(1, 2)) if op == "SoftmaxCrossEntropyLoss" else 1
    return single(op, inputs, outputs, **attributes), inputs


@settings(max_examples=drawn(80), derandomize=True, database=None)
@given(case=losses())
def test_losses_are_those_of_onnxruntime(core: Core, case: Any) -> None:
    model, inputs = case
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for device in ("CPU", "REFERENCE"):
        made = list(run(core, model, device, inputs).values())
        for found, right in zip(made, wanted, strict=True):
            assert (found.dtype, found.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", LOSSES)
@pytest.mark.parametrize("label", [-1, 5, 1 << 40])
def test_a_label_that_is_no_class_is_a_wrong_input(core: Core, op: str, label: int) -> None:
    inputs = {"x": numbers(2, 5), "labels": np.array([0, label])}
    with pytest.raises(TensorError, match="node 'node"):
        run(core, single(op, inputs), "CPU", inputs)


@pytest.mark.parametrize("axes", [None, [1], [0, 2, 3], [-1, 0]])
@pytest.mark.parametrize("shift", [0, 50])
def test_means_and_variances_are_normalized(core: Core, axes: Any, shift: int) -> None:
    inputs = {
        "x": np.random.default_rng(1).standard_normal((3, 4, 5, 6)).astype(np.float32) + shift
    }
    model = single("MeanVarianceNormalization", inputs, **({} if axes is None else {"axes": axes}))
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    made = run(core, model, "CPU", inputs)["y0"]
    np.testing.assert_allclose(made, wanted, atol=1e-5 * (1 + shift))


@pytest.mark.parametrize("op", LOSSES)
def test_lengths_may_come_with_the_run(core: Core, op: str) -> None:
    node = helper.make_node(op, ["x", "labels"], ["y"], name="node", ignore_index=2)
    inputs = {"x": numbers(9, 5, 3), "labels": np.arange(27).reshape(9, 3) % 5}
    model = model_of([node], inputs, dynamic=True, opset=17)
    with core.load_network(model, "CPU") as network, core.load_network(model, "REFERENCE") as other:
        for count in (9, 1, 4, 7):
            given = {name: array[:count] for name, array in inputs.items()}
            made = network.create_infer_request().infer_sync(given)["y"]
            wanted = other.create_infer_request().infer_sync(given)["y"]
            np.testing.assert_allclose(made, wanted, rtol=1e-4)
