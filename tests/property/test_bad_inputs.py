"""Whatever is given as inputs: the right answer, or a TensorError, and the network goes on."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import aioinfer
from aioinfer.errors import TensorError
from exhaustive import drawn

WORDS = np.array(["alpha", "", "Grüße"], object)

KINDS: dict[Any, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    np.float32: ("Relu", lambda x: np.maximum(x, 0)),
    np.float16: ("Abs", np.abs),
    np.float64: ("Neg", np.negative),
    np.int64: ("Neg", np.negative),
    np.uint8: ("Identity", np.copy),
    np.bool_: ("Not", np.logical_not),
    np.object_: ("StringConcat", lambda x: x + x),
}
"""An operator for each element type, and what it gives."""

SHAPES: list[tuple[int | str, ...]] = [
    (),
    ("n",),
    ("n", 2),
    (3, "n"),
    (2,),
    (0, "n"),
    ("n", 1, "m"),
]


@dataclass(frozen=True)
class Case:
    """A loaded model of independent operators, one for each input."""

    network: aioinfer.ExecutableNetwork
    inputs: dict[str, tuple[Any, tuple[int | str, ...]]]

    def feed(self, lengths: dict[str, int], seed: int) -> dict[str, np.ndarray]:
        """Make good inputs."""
        source = np.random.default_rng(seed)
        arrays = {}
        for name, (dtype, shape) in self.inputs.items():
            dims = tuple(lengths[dim] if isinstance(dim, str) else dim for dim in shape)
            numbers = source.integers(0, 3, dims)
            made = WORDS[numbers] if dtype is np.object_ else numbers - (dtype not in UNSIGNED)
            arrays[name] = np.asarray(made, dtype)
        return arrays

    def expected(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the outputs."""
        return {
            f"{name}_out": np.asarray(KINDS[self.inputs[name][0]][1](array))
            for name, array in feed.items()
        }


UNSIGNED = (np.uint8, np.bool_)


def random_model(source: random.Random) -> tuple[onnx.ModelProto, dict[str, Any]]:
    inputs = {
        f"i{index}": (source.choice(list(KINDS)), source.choice(SHAPES))
        for index in range(source.randint(1, 4))
    }
    infos = {
        name: helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
        )
        for name, (dtype, shape) in inputs.items()
    }
    nodes, outputs = [], []
    for name, (dtype, _) in inputs.items():
        op = KINDS[dtype][0]
        arguments = [name] * (2 if op == "StringConcat" else 1)
        nodes.append(helper.make_node(op, arguments, [f"{name}_out"], f"{name}_node"))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", 0, None))
        outputs[-1].type.CopyFrom(infos[name].type)
    graph = helper.make_graph(nodes, "random", list(infos.values()), outputs)
    opset = helper.make_opsetid("", 20)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9), inputs


@pytest.fixture(scope="module")
def cases() -> Iterator[list[Case]]:
    source = random.Random(2)
    with aioinfer.Core() as core:
        made = [random_model(source) for _ in range(8)]
        yield [Case(core.load_network(model, "REFERENCE"), inputs) for model, inputs in made]


def _sliced(array: np.ndarray) -> np.ndarray:
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


def _read_only(array: np.ndarray) -> np.ndarray:
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def _backwards(array: np.ndarray) -> np.ndarray:
    flipped = tuple(slice(None, None, -1) for _ in array.shape)
    return array[flipped].copy()[flipped]


class _Subclass(np.ndarray):
    """An array that computes differently, which nobody may notice."""

    def __array_ufunc__(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("a kernel computed with the caller's class")


class _WithArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array


def _as_matrix(array: np.ndarray) -> np.ndarray:
    if array.ndim != 2:
        return array
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix(array)


GOOD: dict[str, Callable[[np.ndarray], Any]] = {
    "as it is": lambda array: array,
    "Fortran order": lambda array: np.array(array, order="F"),
    "sliced": _sliced,
    "backwards": _backwards,
    "read-only": _read_only,
    "numbers in lists": lambda array: array.tolist() if array.size else array,
    "matrix": _as_matrix,
    "masked without masked items": np.ma.array,
    "subclass": lambda array: array.view(_Subclass),
    "Tensor": aioinfer.Tensor,
    "object with __array__": _WithArray,
    "text of numpy's own": lambda array: array.astype(str) if array.dtype == object else array,
    "broadcast": lambda array: np.broadcast_to(array, array.shape),
}

BAD: dict[str, Callable[[np.ndarray], Any]] = {
    "other type": lambda array: np.zeros(array.shape, "i2" if array.dtype != object else "S5"),
    "other byte order": lambda array: (
        array.astype(array.dtype.newbyteorder(), copy=True)
        if array.dtype.itemsize > 1 and array.dtype != object
        else None
    ),
    "None": lambda array: None,
    "objects": lambda array: np.full((*array.shape, 1), None),
    "too many axes": lambda array: array[None],
    "masked": lambda array: np.ma.array(np.full((1, *array.shape), 1), mask=True),
    "a dict": lambda array: {"a": array},
    "a set": lambda array: {1, 2},
    "a complex number": lambda array: 1j,
    "a structure": lambda array: np.zeros(array.shape, [("a", "f4")]),
    "a function": lambda array: np.zeros,
    "ragged": lambda array: [[1], [1, 2]],
    "a broken object": lambda array: _WithArray("no array"),  # type: ignore[arg-type]
    "dates": lambda array: np.zeros(array.shape, "M8[s]"),
    "no memory": lambda array: aioinfer.Tensor(),
}


def _check_answer(case: Case, given: Any, feed: dict[str, np.ndarray]) -> None:
    outputs = case.network.create_infer_request().infer_sync(given)
    for name, array in case.expected(feed).items():
        assert type(outputs[name]) is np.ndarray
        assert outputs[name].dtype == array.dtype
        np.testing.assert_array_equal(outputs[name], array)


@settings(max_examples=drawn(150))
@given(st.data())
def test_any_layout_and_class_gives_the_right_answer(
    cases: list[Case], data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(cases))
    lengths = {"n": data.draw(st.integers(0, 4)), "m": data.draw(st.integers(0, 3))}
    feed = case.feed(lengths, data.draw(st.integers(0, 99)))
    given_inputs = {
        name: GOOD[data.draw(st.sampled_from(list(GOOD)), label=name)](array)
        for name, array in feed.items()
    }
    # A list for a network with one input is that input, as nested numbers.
    in_order = len(feed) > 1 and data.draw(st.booleans())
    _check_answer(case, list(given_inputs.values()) if in_order else given_inputs, feed)


@settings(max_examples=drawn(150))
@given(st.data())
def test_what_does_not_fit_is_a_tensor_error_and_harms_nobody(
    cases: list[Case], data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(cases))
    feed = case.feed({"n": data.draw(st.integers(0, 4)), "m": 1}, 1)
    given_inputs: dict[Any, Any] = dict(feed)
    victim = data.draw(st.sampled_from(list(feed)))
    how = data.draw(st.sampled_from([*BAD, "missing", "unknown name", "wrong length"]))
    if how == "missing":
        del given_inputs[victim]
    elif how == "unknown name":
        given_inputs[data.draw(st.sampled_from(["i99", "", 5, ("i0",)]))] = feed[victim]
    elif how == "wrong length":
        given_inputs[victim] = np.zeros((5, 5, 5, 5), feed[victim].dtype)
    else:
        given_inputs[victim] = BAD[how](feed[victim])
    request = case.network.create_infer_request()
    with pytest.raises(TensorError) as caught:
        request.infer_sync(given_inputs)
    assert "random" in str(caught.value)
    np.testing.assert_equal(request.infer_sync(feed), case.expected(feed))


@pytest.mark.parametrize("given_inputs", [None, 1j, "text", b"bytes", object(), [], [None] * 9, {}])
def test_what_is_no_set_of_inputs_is_a_tensor_error(cases: list[Case], given_inputs: Any) -> None:
    for case in cases:
        with pytest.raises(TensorError, match="random"):
            case.network.create_infer_request().infer_sync(given_inputs)


def test_symbols_that_disagree_are_a_tensor_error() -> None:
    infos = [helper.make_tensor_value_info(name, 1, ["n", 2]) for name in ("a", "b", "y")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], "add")], "random", infos[:2], infos[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with aioinfer.Core() as core, core.load_network(model, "REFERENCE") as network:
        request = network.create_infer_request()
        for rows, others in ((3, 1), (0, 3), (1, 0)):
            with pytest.raises(TensorError, match=f"'n' is {rows} in input 'a' and {others}"):
                request.infer_sync([np.ones((rows, 2), np.float32), np.ones((others, 2), "f4")])
