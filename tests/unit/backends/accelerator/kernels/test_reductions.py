from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator, run

FLOAT_OPERATORS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]
FEW = ["ReduceLogSumExp", "ReduceMax", "ReduceSum"]
INTEGER_OPERATORS = sorted({*FLOAT_OPERATORS} - {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})

AXES: dict[str, tuple[tuple[int, ...], list[int] | None]] = {
    "the last": ((5, 7, 70), [-1]),
    "the first": ((33, 4, 5), [0]),
    "the first of many columns": ((20, 300), [0]),
    "in the middle": ((2, 300, 3), [1]),
    "apart": ((3, 4, 5, 6), [0, 2]),
    "neighbours": ((3, 4, 5, 6), [3, -2]),
    "all": ((3, 40, 5), None),
    "of length 1": ((3, 1, 5), [1]),
}


def of_shape(*shape: int) -> np.ndarray:
    return np.random.default_rng(31).uniform(0.5, 1.5, shape).astype(np.float32)


def reductions(op_types: list[str], axes: list[int] | None, inputs: Any, **attributes: Any) -> Any:
    """Make a model with one output for each operator."""
    constants = {} if axes is None else {"a": np.array(axes, np.int64)}
    nodes = [operator(name, "x", *constants, outputs=[name], **attributes) for name in op_types]
    return model_of(nodes, inputs, op_types, constants)


@pytest.mark.parametrize("keepdims", all_but([1], [0, 1]))
@pytest.mark.parametrize("case", AXES)
def test_reductions_over_any_axes(case: str, keepdims: int, core: Core) -> None:
    shape, axes = AXES[case]
    inputs = {"x": of_shape(*shape)}
    op_types = FLOAT_OPERATORS if case in ("the last", "apart") else FEW
    model = reductions(op_types, axes, inputs, keepdims=keepdims)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("is_noop", [0, 1], ids=["all", "none"])
def test_no_axes_are_all_or_none(is_noop: int, core: Core) -> None:
    inputs = {"x": of_shape(3, 4)}
    model = reductions(FLOAT_OPERATORS, [], inputs, noop_with_empty_axes=is_noop)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(
    "dtype", all_but([np.int64, np.uint32], [np.int32, np.int64, np.uint32, np.uint64])
)
def test_integers_are_reduced_exactly(dtype: type, core: Core) -> None:
    low = 1 if np.dtype(dtype).kind == "u" else -9
    inputs = {"x": np.random.default_rng(4).integers(low, 9, (3, 11, 4)).astype(dtype)}
    assert_same_as_reference(core, reductions(INTEGER_OPERATORS, [1], inputs), inputs)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
def test_extremes_of_bytes(dtype: type, core: Core) -> None:
    inputs = {"x": np.random.default_rng(5).integers(0, 2, (6, 20)).astype(dtype)}
    assert_same_as_reference(core, reductions(["ReduceMax", "ReduceMin"], [1], inputs), inputs)


def test_the_norm_of_integers_is_refused(core: Core) -> None:
    inputs = {"x": np.ones((2, 3), np.int32)}
    (refused,) = core.query_network(reductions(["ReduceL2"], [1], inputs), "OPENCL").values()
    assert not refused.supported
    assert "ReduceL2 for bfloat16, float16, float32, not for int32" in str(refused.reason)


def test_what_nothing_reduces_to(core: Core) -> None:
    inputs = {"x": np.zeros((2, 0, 3), np.float32)}
    op_types = ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"]
    assert_same_as_reference(core, reductions(op_types, [1], inputs), inputs)


def test_nan_wins(core: Core) -> None:
    values = of_shape(3, 70)
    values[1, 40] = values[1, 50] = np.nan
    extremes = [operator(name, "x", "a", outputs=[name]) for name in ("ReduceMax", "ReduceMin")]
    places = [operator(name, "x", outputs=[name], axis=1) for name in ("ArgMax", "ArgMin")]
    outputs = [node.name for node in (*extremes, *places)]
    model = model_of([*extremes, *places], {"x": values}, outputs, {"a": np.array([1])})
    assert_same_as_reference(core, model, {"x": values})


def test_exponentials_do_not_overflow(core: Core) -> None:
    inputs = {"x": np.array([[800, 801.5, -900] * 20], np.float32)}
    assert_same_as_reference(core, reductions(["ReduceLogSumExp"], [1], inputs), inputs)


def test_there_is_no_place_of_an_extreme_of_nothing(core: Core) -> None:
    inputs = {"x": np.zeros((2, 0), np.float32)}
    model = model_of([operator("ArgMax", "x", axis=1)], inputs)
    with pytest.raises(UnsupportedOpError, match="axis 1 of 'x' has no elements to search"):
        run(core, model, "OPENCL", inputs)


@pytest.mark.parametrize("is_last", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize(("op_type", "axis"), [("ArgMax", 0), ("ArgMin", 1), ("ArgMax", -1)])
def test_the_first_or_last_of_equal_elements_is_found(op_type, axis, is_last, core: Core) -> None:
    for dtype in (np.float32, np.int32):
        values = np.random.default_rng(6).integers(0, 5, (4, 70, 80)).astype(dtype)
        node = operator(op_type, "x", axis=axis, keepdims=is_last, select_last_index=is_last)
        assert_same_as_reference(core, model_of([node], {"x": values}), {"x": values})
