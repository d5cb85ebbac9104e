"""Tensors and ports: what fits an input, and errors that name the input and what it wants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Tensor
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, OptionalType, SequenceType, TensorType
from aioinfer.runtime.tensors.tensor import Port, check_inputs, check_value, signature_reader

F32 = TensorType(DType.FLOAT32, ("n", 3))
X = Port("x", F32)
ONES = np.ones((2, 3), np.float32)


def port(dtype: DType, *shape: int | str | None) -> Port:
    return Port("p", TensorType(dtype, shape))


@pytest.mark.parametrize(
    "given",
    [{"x": ONES}, [ONES], (ONES,), ONES, ONES.tolist(), {"x": ONES.tolist()}, Tensor(ONES)],
    ids=["mapping", "list", "tuple", "array", "numbers", "numbers by name", "tensor"],
)
def test_one_input_may_be_given_by_name_in_order_or_alone(given: Any) -> None:
    np.testing.assert_array_equal(check_inputs(given, [X], "net")["x"], ONES)


def test_several_inputs_are_given_by_name_or_in_order() -> None:
    ports = [Port("a", F32), Port("b", TensorType(DType.INT64, ()))]
    for given in ({"b": 3, "a": ONES}, [ONES, 3], (ONES, np.int64(3))):
        arrays = check_inputs(given, ports, "net")
        assert arrays["a"] is ONES
        assert arrays["b"].shape == ()
        assert arrays["b"] == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "network 'net' got None; it wants a: float32\\[n,3\\], bee: float32\\[n,3\\]"),
        ({"a": ONES}, "input 'bee' of network 'net' is missing; it wants a: float32"),
        ({}, "input 'a' of network 'net' is missing"),
        ({"a": ONES, "be": ONES}, "no input 'be'; did you mean 'bee'\\?; its inputs are a: float"),
        ({"a": ONES, "bee": ONES, 3: ONES}, "no input 3"),
        ([ONES], "has 2 inputs and got a sequence of 1"),
        ([ONES, ONES, ONES], "has 2 inputs and got a sequence of 3"),
        (ONES, "has 2 inputs and got one value; give a mapping by name"),
        ("ab", "got one value"),
        ({"a": None, "bee": ONES}, "'a' is None; it wants float32\\[n,3\\]"),
        ({"a": ONES, "bee": ONES[:1]}, "dimension 'n' is 2 in input 'a' and 1 in input 'bee'"),
    ],
)
def test_wrong_names_counts_and_symbols_are_told(given: Any, message: str) -> None:
    with pytest.raises(TensorError, match=message):
        check_inputs(given, [Port("a", F32), Port("bee", F32)], "net")


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (np.ones(3), port(DType.FLOAT32, 3), "'p' is float64, and float32 .*astype\\('float32'\\)"),
        (np.ones(3, ">f4"), port(DType.FLOAT32, 3), "'p' is >f4, and float32 is wanted"),
        (np.ones(3, np.float32), port(DType.BFLOAT16, 3), "astype\\('bfloat16'\\)"),
        (np.ones(3, np.float32), port(DType.FLOAT8E4M3FN, 3), "astype\\('float8_e4m3fn'\\)"),
        (np.ones(3, bool), port(DType.INT64, 3), "'p' is bool, and int64 is wanted"),
        (np.ones(3, "M8[s]"), port(DType.INT64, 3), "datetime64"),
        (np.ones(3, [("a", "f4")]), port(DType.FLOAT32, 3), "and float32 is wanted"),
        (np.array([1, None]), port(DType.FLOAT32, 2), "'p' is object, and float32 is wanted"),
        (np.ones(3, np.float32), port(DType.STRING, 3), "string is wanted; give strings"),
        (np.array([b"a"]), port(DType.STRING, 1), "string is wanted; give strings"),
        (np.array(["a", 5], object), port(DType.STRING, 2), "holds a int, and only str is wanted"),
        (np.array([b"a"], object), port(DType.STRING, 1), "holds a bytes, and only str"),
        (["a", None], port(DType.STRING, 2), "holds a NoneType, and only str"),
        ([1.5], port(DType.INT64, 1), "'p' cannot be made an array of int64\\[1\\]: a list that"),
        (
            np.ones(3, np.float32),
            port(DType.FLOAT32, 4),
            "has shape \\[3\\], and \\[4\\] is wanted",
        ),
        (np.ones(3, np.float32), port(DType.FLOAT32), "has shape \\[3\\], and \\[\\] is wanted"),
        (np.float32(1), port(DType.FLOAT32, "n"), "has shape \\[\\], and \\[n\\] is wanted"),
        (np.ones((1, 2), np.float32), port(DType.FLOAT32, None, 3), "and \\[\\?,3\\] is wanted"),
        (Tensor(), port(DType.FLOAT32, "n"), "'p' is None"),
    ],
)
def test_a_tensor_that_does_not_fit_is_told_with_what_would(
    given: Any, wanted: Port, message: str
) -> None:
    with pytest.raises(TensorError, match=f"^here: .*{message}"):
        check_value(given, wanted, "here")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.ones((0, 3), np.float32), port(DType.FLOAT32, "n", 3)),
        (np.ones((0, 0), np.float32), port(DType.FLOAT32, None, "m")),
        (np.ones(4, np.float32), Port("p", TensorType(DType.FLOAT32, None))),
        (np.array(1, np.float32), port(DType.FLOAT32)),
        (ONES.T[::-1].T, port(DType.FLOAT32, "n", 3)),
        (np.asfortranarray(ONES), port(DType.FLOAT32, "n", 3)),
        (np.broadcast_to(np.float32(2), (2, 3)), port(DType.FLOAT32, "n", 3)),
        (np.array(["a"], object), port(DType.STRING, 1)),
    ],
)
def test_an_array_that_fits_is_taken_as_it_is(given: np.ndarray, wanted: Port) -> None:
    assert check_value(given, wanted, "here") is given


def test_sequences_and_optionals() -> None:
    sequence = Port("s", SequenceType(F32))
    assert check_value([ONES, ONES[:0]], sequence, "here")[0] is ONES
    assert check_value(Tensor([ONES]), sequence, "here")[0] is ONES
    assert check_value((), sequence, "here") == []
    assert check_value([1, "x"], Port("s", SequenceType(None)), "here") == [1, "x"]
    optional = Port("o", OptionalType(F32))
    assert check_value(None, optional, "here") is None
    assert check_value(ONES, optional, "here") is ONES
    assert check_inputs({}, [optional], "net") == {"o": None}
    for given, wanted, message in (
        (ONES, sequence, "'s' is a ndarray, and a list is wanted: seq\\(float32\\[n,3\\]\\)"),
        ([ONES, ONES.astype(int)], sequence, "'s' is int64, and float32 is wanted"),
        ([None], sequence, "'s' is None"),
        (ONES[0], optional, "'o' has shape \\[3\\]"),
    ):
        with pytest.raises(TensorError, match=message):
            check_value(given, wanted, "here")


def test_a_port_of_unknown_type_takes_what_numpy_takes() -> None:
    unknown = Port("u", None)
    assert check_value([1, 2], unknown, "here") == [1, 2]
    assert check_value(None, unknown, "here") is None
    assert check_value(3.5, unknown, "here") == np.array(3.5)
    with pytest.raises(TensorError, match="masked"):
        check_value(np.ma.array([1], mask=[True]), unknown, "here")
    assert (unknown.dtype, unknown.shape, str(unknown)) == (None, None, "u: ?")


def test_a_plan_is_for_the_shapes_of_the_tensors() -> None:
    ports = [X, Port("s", SequenceType(F32))]
    assert signature_reader(ports)({"x": ONES, "s": [ONES]}) == ((2, 3), None)


def test_a_tensor_wraps_memory_and_shows_it() -> None:
    memory = ONES.copy()
    tensor = Tensor(memory)
    assert (tensor.shape, tensor.dtype, tensor.size) == ((2, 3), np.float32, 6)
    assert repr(tensor) == "<Tensor float32 [2,3]>"
    memory[0, 0] = 5
    assert np.asarray(tensor)[0, 0] == 5
    assert np.shares_memory(np.from_dlpack(tensor), memory)
    assert Tensor([1, 2]).shape == (2,)
    assert Tensor([ONES]).data == [ONES]


def test_a_handle_without_memory_shows_what_its_port_says() -> None:
    tensor = Tensor(port=port(DType.INT64, "n", 3))
    assert (tensor.shape, tensor.dtype, tensor.size, tensor.data) == ((0, 3), np.int64, 0, None)
    assert np.asarray(tensor).shape == (0, 3)
    assert check_value(tensor, port(DType.INT64, "n", 3), "here").shape == (0, 3)
    static = Tensor(port=port(DType.INT64, 2))
    np.testing.assert_array_equal(np.asarray(static), [0, 0])
    with pytest.raises(TensorError, match="'p' is None; it wants int64\\[2\\]"):
        check_value(static, port(DType.INT64, 2), "here")
