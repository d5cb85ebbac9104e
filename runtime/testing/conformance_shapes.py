"""Behaviour where the shapes of a model or of a run contradict each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ModelError, TensorError
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import F32, I64, SampleModel, sample_node

if TYPE_CHECKING:
    from ..devices.core import Core

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _shaped_by_content(op: str) -> SampleModel:
    """Build Relu and then an operator that makes another shape of it, told by an input."""
    return SampleModel(
        f"{op.lower()}_by_content",
        {"x": (F32, ("n", "m")), "shape": (I64, (2,))},
        {"y": (F32, ("a", "b"))},
        (sample_node("Relu", "x", "r"), sample_node(op, "r shape", "y")),
        (),
    )


def _refuse_contents(
    core: Core, device: str, op: str, bad: list[np.ndarray], good: np.ndarray
) -> None:
    with load(core, device, _shaped_by_content(op)) as network:
        request = network.create_infer_request()
        expected = X.reshape(good) if op == "Reshape" else X * np.ones(good, np.float32)
        for shape in bad:
            error = expect_error(
                TensorError,
                partial(request.infer_sync, {"x": X, "shape": shape}),
                f"a {op} of {X.shape} to {shape.tolist()}",
            )
            expect(f"{op.lower()}_1" in str(error), f"the error names the node: {error}")
            outputs = request.infer_sync({"x": X, "shape": good})
            expect_equal(outputs["y"], expected, "'y' after a refused run")


@behaviour
def _a_reshape_to_another_number_of_elements_is_refused(core: Core, device: str) -> None:
    bad = [_ints(2, 3000), _ints(50000, 50000), _ints(2, 2), _ints(-1, -1), _ints(-1, 7)]
    _refuse_contents(core, device, "Reshape", bad, _ints(2, 6))


@behaviour
def _an_expansion_that_is_none_is_refused(core: Core, device: str) -> None:
    bad = [_ints(3, 5), _ints(7, 4), _ints(-1, 4)]
    _refuse_contents(core, device, "Expand", bad, _ints(1, 4))


@behaviour
def _shapes_that_contradict_each_other_are_refused(core: Core, device: str) -> None:
    sample = SampleModel(
        "added",
        {"x": (F32, ("n",)), "z": (F32, ("m",))},
        {"y": (F32, ("k",))},
        (sample_node("Relu", "x", "r"), sample_node("Add", "r z", "y")),
        (),
    )
    ones = np.ones(9, np.float32)
    with load(core, device, sample) as network:
        request = network.create_infer_request()
        for count in (5, 9):
            expect_error(
                TensorError,
                partial(request.infer_sync, {"x": ones[:4], "z": ones[:count]}),
                f"a sum of 4 and {count} elements",
            )
            outputs = request.infer_sync({"x": ones[:4], "z": ones[:1]})
            expect_equal(outputs["y"], 2 * ones[:4], "'y' after a refused run")


@behaviour
def _a_scale_that_is_shorter_than_the_rows_is_refused(core: Core, device: str) -> None:
    sample = SampleModel(
        "scaled",
        {"x": (F32, ("n", "m")), "scale": (F32, ("k",))},
        {"y": (F32, ("n", "m"))},
        (sample_node("LayerNormalization", "x scale", "y"),),
        (),
    )
    with load(core, device, sample) as network:
        request = network.create_infer_request()
        for count in (3, 5):
            scale = np.ones(count, np.float32)
            expect_error(
                TensorError,
                partial(request.infer_sync, {"x": X, "scale": scale}),
                f"a normalisation of rows of 4 with {count} scales",
            )
        outputs = request.infer_sync({"x": X, "scale": np.zeros(4, np.float32)})
        expect_equal(outputs["y"], np.zeros((3, 4), np.float32), "'y' after a refused run")


@behaviour
def _a_model_that_contradicts_itself_is_not_loaded(core: Core, device: str) -> None:
    for shape in ((3, 4), ("n", 4)):
        sample = SampleModel(
            "contradictory",
            {"x": (F32, shape)},
            {"y": (F32, (1,))},
            (sample_node("ReduceSum", "x axes", "y"),),
            (),
            {"axes": _ints(7)},
        )
        error = expect_error(
            ModelError,
            partial(core.load_network, sample.proto(), device),
            "loading a sum over axis 7 of two",
        )
        expect("reducesum_0" in str(error), f"the error names the node: {error}")


@behaviour
def _the_row_of_an_index_out_of_range_is_all_off(core: Core, device: str) -> None:
    sample = SampleModel(
        "one_hot",
        {"x": (I64, ("n",))},
        {"y": (F32, ("n", 3))},
        (sample_node("OneHot", "x depth values", "y"),),
        (),
        {"depth": np.array(3), "values": np.array([0, 1], np.float32)},
    )
    with load(core, device, sample) as network:
        request = network.create_infer_request()
        outputs = request.infer_sync({"x": _ints(0, -1, 3, -4, 2**40)})
        rows = np.zeros((5, 3), np.float32)
        rows[0, 0] = rows[1, 2] = 1
        expect_equal(outputs["y"], rows, "'y'")


@behaviour
def _a_sequence_that_is_longer_than_its_axis_is_refused(core: Core, device: str) -> None:
    sample = SampleModel(
        "reversed",
        {"x": (F32, ("t", "n")), "lengths": (I64, ("n",))},
        {"y": (F32, ("t", "n"))},
        (sample_node("ReverseSequence", "x lengths", "y"),),
        (),
    )
    with load(core, device, sample) as network:
        request = network.create_infer_request()
        for lengths in (_ints(1, 2, 3, 4), _ints(0, -1, 2, 3), _ints(2**40, 1, 1, 1)):
            expect_error(
                TensorError,
                partial(request.infer_sync, {"x": X, "lengths": lengths}),
                f"reversing {lengths.tolist()} of 3 steps",
            )
        outputs = request.infer_sync({"x": X, "lengths": _ints(3, 2, 1, 0)})
        turned = X.copy()
        turned[:, 0], turned[:2, 1] = X[::-1, 0], X[1::-1, 1]
        expect_equal(outputs["y"], turned, "'y' after a refused run")
