from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.elementwise.fused_step import (
    FusedStep,
    joined_steps,
    operand_names,
    parse_steps,
    steps_behind,
)
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import DType, Node

STEPS = (
    FusedStep("Clip", ("i0", "_", "i2"), DType.FLOAT32),
    FusedStep("Selu", ("s0",), DType.FLOAT16, (1.5, float("inf"))),
    FusedStep("Equal", ("s1", "i0"), DType.BOOL),
)


def node_of(*texts: str) -> Node:
    return Node("FusedElementwise", (), (), {"steps": list(texts)}, name="fused")


def test_steps_are_read_as_they_are_written() -> None:
    assert parse_steps(node_of(*map(str, STEPS))) == STEPS
    assert str(STEPS[0]) == "Clip(i0,_,i2):float32"


def test_operands_are_listed_once_in_order_of_use() -> None:
    assert operand_names(STEPS) == ["i0", "i2"]


def test_operands_get_other_names() -> None:
    assert STEPS[2].renamed({"i0": "acc"}).operands == ("s1", "acc")


def test_steps_count_from_where_they_begin() -> None:
    first = [FusedStep("Add", ("acc", "i2"), DType.FLOAT32)]
    then = [
        FusedStep("Exp", ("acc",), DType.FLOAT32),
        FusedStep("Mul", ("s0", "i3"), DType.FLOAT32),
    ]
    joined = joined_steps(first, then)
    assert [str(step) for step in joined[1:]] == ["Exp(s0):float32", "Mul(s1,i3):float32"]
    assert steps_behind(joined, 1, "s0") == tuple(then)
    assert steps_behind(joined, 3, "s2") == ()


@pytest.mark.parametrize("text", ["Relu", "Relu(i0)", "Relu(i0):float99"])
def test_a_text_that_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="is no step of a fused group"):
        parse_steps(node_of(text))
