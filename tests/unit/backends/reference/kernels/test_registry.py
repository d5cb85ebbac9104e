"""Which kernel a node gets."""

import numpy as np
import pytest

from aioinfer.backends.reference.kernels import registry
from aioinfer.backends.reference.kernels.registry import find_kernel, kernel
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Node, Value


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_kernels", {})


def node_of(op_type, output_count=1, **attributes):
    outputs = [Value(f"y{index}") for index in range(output_count)]
    return Node(op_type, [Value("x")], outputs, attributes, name="n")


def test_a_kernel_gets_the_attributes_of_its_node() -> None:
    @kernel("Times")
    def times(x, *, by=1):
        return x * by

    found = find_kernel(node_of("Times", by=3))
    assert found is not None
    assert found.bind(node_of("Times", by=3))(np.array([2]))[0].tolist() == [6]


def test_a_node_with_an_attribute_that_the_kernel_does_not_know_is_left_to_onnx() -> None:
    @kernel("Times")
    def times(x, *, by=1):
        return x * by

    assert find_kernel(node_of("Times", power=2)) is None


def test_a_node_without_an_attribute_that_the_kernel_needs_is_left_to_onnx() -> None:
    @kernel("Times")
    def times(x, *, by):
        return x * by

    assert find_kernel(node_of("Times")) is None


def test_a_kernel_with_open_keywords_knows_all_attributes() -> None:
    @kernel("Times")
    def times(x, **attributes):
        return x

    assert find_kernel(node_of("Times", power=2)) is not None


def test_a_kernel_may_decline_a_node() -> None:
    @kernel("Times", accepts=lambda node: node.attributes["by"] > 1)
    def times(x, *, by):
        return x * by

    assert find_kernel(node_of("Times", by=2)) is not None
    assert find_kernel(node_of("Times", by=1)) is None


def test_a_kernel_may_ask_how_many_outputs_there_are() -> None:
    @kernel("Count", takes_output_count=True)
    def count(x, *, output_count=1):
        return tuple([x] * output_count)

    node = node_of("Count", output_count=3)
    found = find_kernel(node)
    assert found is not None
    assert len(found.bind(node)(np.zeros(1))) == 3


def test_an_operator_without_a_kernel_has_none() -> None:
    assert find_kernel(node_of("Swirl")) is None


def test_two_kernels_for_one_operator_are_refused() -> None:
    kernel("Times")(lambda x: x)
    with pytest.raises(GraphError, match="Times"):
        kernel("Times")(lambda x: x)
