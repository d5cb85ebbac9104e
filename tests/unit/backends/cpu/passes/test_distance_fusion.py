"""Distances between rows without differences in memory, against REFERENCE."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from unit.backends.cpu.comparing import assert_same_as_reference, model_of
from unit.backends.cpu.kernels.plans import implementations

KINDS = ("ReduceSumSquare", "ReduceL1", "ReduceL2")


def distances(kind, rows=5, others=7, length=19, axis=2, order=("a", "b"), **attributes):
    random = np.random.default_rng(rows + length)
    inputs = {
        "a": random.normal(size=(rows, 1, length)).astype(np.float32),
        "b": random.normal(size=(others, length)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Sub", order, ["d"]),
        helper.make_node(kind, ["d", "axes"], ["y"], **{"keepdims": 0, **attributes}),
    ]
    dynamic = attributes.pop("dynamic", False)
    return model_of(nodes, inputs, constants={"axes": np.array([axis])}, dynamic=dynamic), inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("length", [1, 8, 19, 64])
@pytest.mark.parametrize("others", [1, 600])
def test_they_are_one_kernel(core, kind, order, length, others) -> None:
    model, inputs = distances(kind, others=others, length=length, order=order, axis=-1)
    assert_same_as_reference(core, model, inputs)
    assert implementations(core, model, inputs) == ["native:pair_distances"]


def test_numbers_that_are_none_reach_the_result(core) -> None:
    model, inputs = distances("ReduceSumSquare")
    inputs["a"][1, 0, 3], inputs["a"][2, 0, 4] = np.nan, np.inf
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("change", [{"axis": 1}, {"axis": 0}, {"keepdims": 1}])
def test_other_reductions_are_left_alone(core, change) -> None:
    model, inputs = distances("ReduceSumSquare", **change)
    assert_same_as_reference(core, model, inputs)
    assert "native:pair_distances" not in implementations(core, model, inputs)
