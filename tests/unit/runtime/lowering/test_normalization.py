"""Which variants of normalisations are refused before shapes are known."""

from __future__ import annotations

from typing import Any

import pytest

from aioinfer.runtime.graph import DType, Node, TensorType, Value
from aioinfer.runtime.lowering.normalization import (
    find_low_rank,
    find_other_batch_normalization,
    find_other_parameters,
    find_other_precision,
)


def node_of(*inputs: Value, outputs: int = 1, **attributes: Any) -> Node:
    made = [Value(f"y{index}") for index in range(outputs)]
    return Node("BatchNormalization", inputs, made, attributes, name="n")


def value_of(dtype: DType = DType.FLOAT32, rank: int | None = 3) -> Value:
    return Value("x", TensorType(dtype, None if rank is None else (1,) * rank))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (value_of(rank=2), None),
        (value_of(rank=1), "BatchNormalization runs from rank 2 on, not for rank 1"),
        (value_of(rank=None), "the rank of BatchNormalization's input is not known"),
        (Value("x"), "the rank of BatchNormalization's input is not known"),
    ],
)
def test_an_input_needs_channels(value: Value, reason: str | None) -> None:
    assert find_low_rank(node_of(value)) == reason


def test_batches_are_normalised_by_given_statistics_of_channels() -> None:
    unused = node_of(value_of(), outputs=3)
    assert find_other_batch_normalization(unused) is None
    used = node_of(value_of(), outputs=2)
    Node("Relu", [used.outputs[1]], [Value("z")], name="user")
    assert "one output" in str(find_other_batch_normalization(used))
    assert "inference only" in str(find_other_batch_normalization(node_of(training_mode=1)))
    assert "channels only" in str(find_other_batch_normalization(node_of(spatial=0)))


def test_parameters_of_other_types_are_named() -> None:
    floats = {DType.FLOAT32, DType.FLOAT16}
    doubles = node_of(
        value_of(DType.FLOAT64), value_of(), Value("unknown"), value_of(DType.FLOAT64)
    )
    reason = "BatchNormalization runs with parameters of float16, float32, not of float64"
    assert find_other_parameters(doubles, floats) == reason
    assert find_other_parameters(node_of(value_of(DType.FLOAT64), value_of()), floats) is None


def test_statistics_are_float32() -> None:
    assert find_other_precision(node_of()) is None
    assert find_other_precision(node_of(stash_type=DType.FLOAT32.value)) is None
    assert "float32 only" in str(find_other_precision(node_of(stash_type=DType.BFLOAT16.value)))
