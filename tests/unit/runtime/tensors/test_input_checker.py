"""The prepared check: the same answers and the same words as check_inputs, and a way past it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Tensor
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tensors import input_checker
from aioinfer.runtime.tensors.input_checker import InputChecker
from aioinfer.runtime.tensors.tensor import Port, check_inputs

A = Port("a", TensorType(DType.FLOAT32, (2, 3)))
B = Port("b", TensorType(DType.INT64, ()))
ONES = np.ones((2, 3), np.float32)
GOOD = {"a": ONES, "b": np.array(1)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What went to check_inputs."""
    given: list[Any] = []

    def spy(inputs: Any, *rest: Any, **options: Any) -> dict[str, Any]:
        given.append(inputs)
        return check_inputs(inputs, *rest, **options)

    monkeypatch.setattr(input_checker, "check_inputs", spy)
    return given


def test_exact_arrays_are_passed_without_a_look_at_each_rule(asked: list[Any]) -> None:
    checked = InputChecker([A, B], "net").check(GOOD)
    assert checked == GOOD
    assert checked is not GOOD, "the caller may change its dict while the run is under way"
    assert checked["a"] is ONES
    assert asked == []


def test_an_array_in_another_memory_order_is_as_good(asked: list[Any]) -> None:
    turned = np.ones((3, 2), np.float32).T
    assert InputChecker([A], "net").check({"a": turned})["a"] is turned
    assert asked == []


@pytest.mark.parametrize(
    "given",
    [
        {"a": ONES.tolist(), "b": 1},
        [ONES, 1],
        {"a": Tensor(ONES), "b": np.int64(1)},
        {"b": np.array(1), "a": ONES.view(np.recarray)},
    ],
    ids=["numbers", "sequence", "handle", "subclass"],
)
def test_what_is_not_exact_is_taken_all_the_same(asked: list[Any], given: Any) -> None:
    checked = InputChecker([A, B], "net").check(given)
    np.testing.assert_array_equal(checked["a"], ONES)
    assert checked["b"] == 1
    assert asked == [given]


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"a": ONES},
        {"a": ONES, "c": np.array(1)},
        {"a": ONES, "b": np.array(1), "c": ONES},
        {"a": ONES.astype(np.float64), "b": np.array(1)},
        {"a": ONES.astype(">f4"), "b": np.array(1)},
        {"a": ONES[:1], "b": np.array(1)},
        {"a": None, "b": np.array(1)},
        ONES,
    ],
    ids=["none", "empty", "missing", "other", "more", "dtype", "order", "shape", "null", "one"],
)
def test_errors_are_those_of_check_inputs(given: Any) -> None:
    with pytest.raises(TensorError) as wanted:
        check_inputs(given, [A, B], "net")
    with pytest.raises(TensorError) as raised:
        InputChecker([A, B], "net").check(given)
    assert str(raised.value) == str(wanted.value)


@pytest.mark.parametrize(
    "port",
    [
        Port("x", TensorType(DType.FLOAT32, None)),
        Port("x", None),
    ],
    ids=["rank", "type"],
)
def test_ports_that_leave_something_open_are_checked_in_full(asked: list[Any], port: Port) -> None:
    given = {"x": ONES}
    assert InputChecker([port], "net").check(given)["x"] is ONES
    assert asked == [given]


def test_an_open_length_takes_any_and_the_others_are_checked() -> None:
    checker = InputChecker([Port("x", TensorType(DType.FLOAT32, ("n", 3)))], "net")
    for length in (0, 1, 7):
        given = np.ones((length, 3), np.float32)
        assert checker.check({"x": given})["x"] is given
    for wrong in ((2, 4), (3,), (1, 2, 3)):
        with pytest.raises(TensorError, match="has shape"):
            checker.check({"x": np.ones(wrong, np.float32)})


def test_a_symbol_of_two_inputs_is_the_same_length_in_both(asked: list[Any]) -> None:
    ports = [Port(name, TensorType(DType.FLOAT32, (3, "n"))) for name in "xyz"]
    checker = InputChecker(ports, "net")
    for length in (0, 1, 7):
        given = {name: np.ones((3, length), np.float32) for name in "xyz"}
        assert checker.check(given) == given
    assert asked == []
    for odd in "yz":
        given = {name: np.ones((3, 2 + (name == odd)), np.float32) for name in "xyz"}
        with pytest.raises(TensorError, match=f"'n' is 2 in input 'x' and 3 in input '{odd}'"):
            checker.check(given)


def test_a_symbol_of_two_axes_is_the_same_length_in_both() -> None:
    checker = InputChecker([Port("x", TensorType(DType.FLOAT32, ("n", "n")))], "net")
    assert checker.check({"x": np.ones((2, 2), np.float32)})["x"].shape == (2, 2)
    with pytest.raises(TensorError, match="dimension 'n' is 2"):
        checker.check({"x": np.ones((2, 3), np.float32)})


def test_strings_are_looked_at_one_by_one() -> None:
    port = Port("s", TensorType(DType.STRING, (2,)))
    with pytest.raises(TensorError, match="holds a int, and only str"):
        InputChecker([port], "net").check({"s": np.array(["a", 1], object)})
