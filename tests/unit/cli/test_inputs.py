import numpy as np
import pytest

from aioinfer.cli.arguments import OptionError
from aioinfer.cli.inputs import InputSets, random_inputs
from aioinfer.runtime.graph import DType, OptionalType, SequenceType, TensorType
from aioinfer.runtime.tensors.tensor import Port, check_inputs


def tensor(name: str, dtype: DType) -> Port:
    return Port(name, TensorType(dtype, ("n", 3)))


@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.label)
@pytest.mark.parametrize("shape", [(4, 3), (0, 3)])
def test_random_inputs_have_the_type_and_shape_that_the_network_takes(
    dtype: DType, shape: tuple[int, ...]
) -> None:
    port = tensor("x", dtype)
    values = random_inputs([port], {"x": shape}, 0)
    checked = check_inputs(values, [port], "test")
    assert checked["x"].shape == shape


@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.label)
def test_random_scalars_are_arrays(dtype: DType) -> None:
    port = Port("x", TensorType(dtype, ()))
    value = random_inputs([port], {"x": ()}, 0)["x"]
    assert isinstance(value, np.ndarray)
    assert value.shape == ()


@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.label)
def test_the_same_seed_gives_the_same_values_whatever_else_is_asked_for(dtype: DType) -> None:
    ports = [tensor("x", dtype), tensor("y", DType.FLOAT32)]
    shapes = {"x": (50, 3), "y": (50, 3)}
    together = random_inputs(ports, shapes, 7)
    alone = random_inputs(ports[:1], shapes, 7)
    assert together["x"].tolist() == alone["x"].tolist()


def test_seeds_and_names_give_different_values() -> None:
    ports = [tensor("x", DType.FLOAT32), tensor("y", DType.FLOAT32)]
    shapes = {"x": (5, 3), "y": (5, 3)}
    first, second = random_inputs(ports, shapes, 0), random_inputs(ports, shapes, 1)
    assert not np.array_equal(first["x"], second["x"])
    assert not np.array_equal(first["x"], first["y"])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (DType.FLOAT32, 0.0, 1.0),
        (DType.INT64, 0, 1),
        (DType.INT8, 0, 1),
        (DType.UINT8, 0, 255),
        (DType.BOOL, 0, 1),
    ],
)
def test_random_values_stay_in_their_range_and_use_it(
    dtype: DType, low: float, high: float
) -> None:
    values = random_inputs([tensor("x", dtype)], {"x": (2000, 3)}, 0)["x"]
    assert low <= values.min() <= low + 0.05 * (high - low)
    assert high - 0.05 * (high - low) <= values.max() <= high


def test_random_strings_are_strings() -> None:
    values = random_inputs([tensor("x", DType.STRING)], {"x": (2, 3)}, 0)["x"]
    assert all(isinstance(item, str) for item in values.flat)


def test_sequences_hold_two_values_and_optionals_are_left_empty() -> None:
    element = TensorType(DType.INT64, (None, 4))
    ports = [Port("list", SequenceType(element)), Port("maybe", OptionalType(element))]
    values = random_inputs(ports, {}, 0)
    assert [item.shape for item in values["list"]] == [(1, 4), (1, 4)]
    assert values["list"][0].dtype == np.int64
    assert values["maybe"] is None


@pytest.mark.parametrize("type_", [None, SequenceType(None)])
def test_an_input_of_unknown_type_is_refused(type_: SequenceType | None) -> None:
    with pytest.raises(OptionError, match=r"'x:FILE\.npy'"):
        random_inputs([Port("x", type_)], {}, 0)


def test_each_input_rotates_through_its_own_values() -> None:
    inputs = InputSets({"x": ["a", "b", "c"], "y": ["d", "e"]})
    assert inputs.count == 3
    assert [inputs.at(number)["x"] for number in range(4)] == ["a", "b", "c", "a"]
    assert [inputs.at(number)["y"] for number in range(4)] == ["d", "e", "d", "e"]


def test_a_model_without_inputs_has_one_empty_set() -> None:
    assert InputSets({}).count == 1
    assert InputSets({}).at(5) == {}
