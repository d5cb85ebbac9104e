"""What runs a node, and why nothing does."""

import numpy as np
import pytest

from aioinfer.backends.reference.finder import KernelFinder
from aioinfer.errors import UnsupportedOpError
from aioinfer.runtime.graph import Node, Value
from onnx_text import parse

X = np.array([-1.0, 2.0], np.float32)


def node_of(op_type, input_count=1, domain="", **attributes):
    inputs = [Value(f"x{index}") for index in range(input_count)]
    return Node(op_type, inputs, [Value("y")], attributes, name="n", domain=domain)


def test_an_extension_goes_before_our_kernel() -> None:
    finder = KernelFinder({"": 26}, {("", "Relu"): lambda x: x + 1})
    assert finder(node_of("Relu"))(X)[0].tolist() == [0.0, 3.0]


def test_an_extension_gets_the_attributes_and_may_return_a_tuple() -> None:
    finder = KernelFinder({}, {("com.acme", "Swirl"): lambda x, *, by: (x * by,)})
    node = node_of("Swirl", domain="com.acme", by=2)
    assert finder.find_unsupported(node) is None
    assert finder(node)(X)[0].tolist() == [-2.0, 4.0]


def test_an_operator_without_our_kernel_runs_in_onnx() -> None:
    finder = KernelFinder({"": 26})
    assert finder(node_of("Selu"))(X)[0].shape == (2,)


def test_what_nobody_knows_is_an_error_of_this_device() -> None:
    finder = KernelFinder({"": 26}, device="REFERENCE.1")
    with pytest.raises(UnsupportedOpError) as caught:
        finder(node_of("Swirl", domain="com.acme"))
    assert (caught.value.device, caught.value.op) == ("REFERENCE.1", "com.acme::Swirl")
    assert "com.acme" in caught.value.reason


BODY = """g (bool c, float[2] x) => (float[2] y) {
    y = If(c) <
        then_branch = a () => (float[2] t) { t = Neg(x) },
        else_branch = b () => (float[2] e) { e = Abs(x) }
    >
}"""


def test_control_flow_is_supported_if_its_bodies_are() -> None:
    model = parse(BODY)
    (branch,) = model.graph.nodes
    finder = KernelFinder(model.opsets)
    assert finder.find_unsupported(branch) is None
    inner = next(branch.attributes["else_branch"].nodes)
    inner.op_type = "Swirl"
    reason = finder.find_unsupported(branch) or ""
    assert "Swirl" in reason
    assert inner.name in reason


def test_an_extension_may_take_control_flow() -> None:
    model = parse(BODY)
    (branch,) = model.graph.nodes
    finder = KernelFinder(model.opsets, {("", "If"): lambda c, **branches: c})
    assert finder.flow_of(branch) is None


def test_a_node_that_our_kernel_cannot_take_is_named_with_the_reason() -> None:
    finder = KernelFinder({"": 26})
    assert "'axis' is missing" in (finder.find_unsupported(node_of("Concat")) or "")
    assert "no attribute 'volume'" in (finder.find_unsupported(node_of("Relu", volume=11)) or "")
