"""A user's kernels: custom operators, overrides of ONNX's own, and what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import GraphError, TensorError, UnsupportedOpError
from aioinfer.runtime.graph import DType, TensorType

X = np.array([[1, -2]], np.float32)

Rule = Callable[[Sequence[TensorType | None], Mapping[str, Any]], Any]


def model_of(
    *nodes: onnx.NodeProto, output: int = TensorProto.FLOAT, **weights: np.ndarray
) -> onnx.ModelProto:
    """Take x: float32[n,2] and give y."""
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    domains = ["", "com.acme"]
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(name, 1 + 20 * (not name)) for name in domains]
    )


def swirl_model() -> onnx.ModelProto:
    return model_of(
        helper.make_node("Swirl", ["x"], ["s"], "swirl", domain="com.acme", factor=3),
        helper.make_node("Neg", ["s"], ["y"], "neg"),
    )


def swirl(x: np.ndarray, factor: int) -> np.ndarray:
    return x * np.float32(factor)


def same_as_input(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
    return [types[0]]


def infer(core: aioinfer.Core, model: onnx.ModelProto, x: np.ndarray = X) -> np.ndarray:
    with core.load_network(model, "REFERENCE") as network:
        return network.create_infer_request().infer_sync(x)["y"]


def test_a_custom_operator_needs_an_extension_and_then_runs(core: aioinfer.Core) -> None:
    answers = core.query_network(swirl_model(), "REFERENCE")
    assert answers["neg"].supported
    assert "com.acme" in answers["swirl"].reason
    with pytest.raises(UnsupportedOpError, match=r"com.acme::Swirl .*add_extension"):
        core.load_network(swirl_model(), "REFERENCE")
    core.add_extension(aioinfer.Extension("Swirl", swirl, "com.acme", same_as_input))
    assert all(
        answer.supported for answer in core.query_network(swirl_model(), "REFERENCE").values()
    )
    with core.load_network(swirl_model(), "REFERENCE.1") as network:
        assert network.outputs[0].type == TensorType(DType.FLOAT32, ("n", 2))
        outputs = network.create_infer_request().infer_sync(X)
    np.testing.assert_array_equal(outputs["y"], X * -3)


def test_networks_keep_the_kernels_that_they_were_loaded_with(core: aioinfer.Core) -> None:
    core.add_extension(aioinfer.Extension("Swirl", swirl, "com.acme"))
    with core.load_network(swirl_model(), "REFERENCE") as network:
        core.add_extension(aioinfer.Extension("Swirl", lambda x, factor: x, "com.acme"))
        outputs = network.create_infer_request().infer_sync(X)
    np.testing.assert_array_equal(outputs["y"], X * -3)
    np.testing.assert_array_equal(infer(core, swirl_model()), -X)


def test_an_override_of_onnxs_own_operator_is_used_where_passes_would_know_better(
    core: aioinfer.Core,
) -> None:
    model = model_of(
        helper.make_node("Identity", ["x"], ["same"], "identity"),
        helper.make_node("Abs", ["weight"], ["folded"], "abs"),
        helper.make_node("Add", ["same", "folded"], ["y"], "add"),
        weight=np.array([10, 20], np.float32),
    )
    np.testing.assert_array_equal(infer(core, model), X + np.array([10, 20]))
    core.add_extension(aioinfer.Extension("Identity", lambda x: x + np.float32(1)))
    core.add_extension(aioinfer.Extension("Abs", lambda x: x * np.float32(2)))
    np.testing.assert_array_equal(infer(core, model), X + 1 + np.array([20, 40]))
    core.add_extension(aioinfer.Extension("Add", lambda a, b: a - b))
    np.testing.assert_array_equal(infer(core, model), X + 1 - np.array([20, 40]))


def test_a_kernel_may_have_several_outputs_and_optional_inputs(core: aioinfer.Core) -> None:
    def both(x: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, ...]:
        assert bias is None
        return x + np.float32(1), x - np.float32(1)

    core.add_extension(aioinfer.Extension("Both", both, "com.acme"))
    model = model_of(
        helper.make_node("Both", ["x", ""], ["up", "down"], "both", domain="com.acme"),
        helper.make_node("Mul", ["up", "down"], ["y"], "mul"),
    )
    np.testing.assert_array_equal(infer(core, model), (X + 1) * (X - 1))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x, factor: 1 / 0, "failed with ZeroDivisionError: division by zero"),
        (lambda x: x, "failed with TypeError: .* unexpected keyword argument 'factor'"),
        (lambda x, factor: object(), "a result of type object is no tensor"),
        (lambda x, factor: (), "gave 0 outputs where 1 are used"),
        (lambda x, factor: x.astype(np.float64), "output 0 is float64, and the model, .* float32"),
        (lambda x, factor: np.negative(x, out=x), "read-only"),
    ],
)
def test_a_kernel_that_fails_names_its_node_and_the_network_goes_on(
    core: aioinfer.Core, kernel: Callable[..., Any], reason: str
) -> None:
    is_bad = True

    def sometimes(x: np.ndarray, **attributes: Any) -> Any:
        return kernel(x, **attributes) if is_bad else swirl(x, **attributes)

    core.add_extension(aioinfer.Extension("Swirl", sometimes, "com.acme", same_as_input))
    with core.load_network(swirl_model(), "REFERENCE") as network:
        request = network.create_infer_request()
        given = X.copy()
        with pytest.raises(TensorError, match=f"com.acme::Swirl \\(node 'swirl'\\).*{reason}"):
            request.infer_sync(given)
        np.testing.assert_array_equal(given, X)
        is_bad = False
        np.testing.assert_array_equal(request.infer_sync(X)["y"], X * -3)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (lambda types, attributes: 1 / 0, "failed on node 'swirl': ZeroDivisionError"),
        (lambda types: types, "failed on node 'swirl': TypeError"),
        (lambda types, attributes: types[0], "gave TensorType.* for node 'swirl'; a list with a"),
        (lambda types, attributes: None, "gave None for node 'swirl'"),
        (
            lambda types, attributes: [TensorType(DType.FLOAT32, (-1,))],
            "gave .*; a length is an int",
        ),
        (
            lambda types, attributes: [TensorType(DType.FLOAT32, (0.5,))],
            "gave .*; a length is an int",
        ),
        (lambda types, attributes: [(1, 2)], "gave \\[\\(1, 2\\)\\] for node 'swirl'"),
    ],
)
def test_a_type_rule_that_fails_names_its_node_when_the_model_is_loaded(
    core: aioinfer.Core, rule: Rule, reason: str
) -> None:
    core.add_extension(aioinfer.Extension("Swirl", swirl, "com.acme", rule))
    with pytest.raises(GraphError, match=f"the type rule of com.acme::Swirl {reason}"):
        core.load_network(swirl_model(), "REFERENCE")


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
def test_a_type_rule_may_compute_lengths_with_numpy(core: aioinfer.Core, device: str) -> None:
    def rule(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
        (known,) = types
        assert known is not None
        dims = [np.int64(dim) if isinstance(dim, int) else dim for dim in known.shape or ()]
        return [TensorType(known.dtype, tuple(dims))]

    def shortened(x: np.ndarray, **attributes: Any) -> np.ndarray:
        return np.asarray(swirl(x, **attributes))[:1]

    is_short = False

    def sometimes(x: np.ndarray, **attributes: Any) -> np.ndarray:
        made = np.asarray(swirl(x, **attributes))
        return made[:, :1] if is_short else made

    core.add_extension(aioinfer.Extension("Swirl", sometimes, "com.acme", rule), device)
    with core.load_network(swirl_model(), device) as network:
        request = network.create_infer_request()
        np.testing.assert_array_equal(request.infer_sync(X)["y"], X * -3)
        is_short = True
        with pytest.raises(TensorError, match="output 0 is"):
            request.infer_sync(X)


def test_a_type_rule_that_knows_nothing_leaves_the_type_open(core: aioinfer.Core) -> None:
    core.add_extension(aioinfer.Extension("Swirl", swirl, "com.acme", lambda types, _: [None]))
    np.testing.assert_array_equal(infer(core, swirl_model()), X * -3)


def test_a_custom_operator_may_stand_in_a_body(core: aioinfer.Core) -> None:
    def branch(factor: int) -> onnx.GraphProto:
        inner = helper.make_node("Swirl", ["x"], ["b"], "inner", domain="com.acme", factor=factor)
        output = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
        return helper.make_graph([inner], f"times{factor}", [], [output])

    seen: list[Sequence[TensorType | None]] = []

    def rule(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
        seen.append(types)
        return [types[0]]

    core.add_extension(aioinfer.Extension("Swirl", swirl, "com.acme", rule))
    model = model_of(
        helper.make_node("ReduceSum", ["x"], ["total"], "sum", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["is_positive"], "greater"),
        helper.make_node(
            "If",
            ["is_positive"],
            ["y"],
            "if",
            then_branch=branch(2),
            else_branch=branch(5),
        ),
        zero=np.float32(0),
    )
    np.testing.assert_array_equal(infer(core, model, X), X * 5)
    np.testing.assert_array_equal(infer(core, model, -X), X * -2)
    assert TensorType(DType.FLOAT32, ("n", 2)) in [types[0] for types in seen]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", swirl), "op_type is a name such as 'MyOp', not ''"),
        ((5, swirl), "not 5"),
        (("Swirl", swirl, None), "the domain of extension Swirl is None"),
        (("Swirl", 5), "the kernel of extension Swirl is a int, and a function is wanted"),
        (("Swirl", None), "the kernel of extension Swirl is a NoneType"),
        (("Swirl", swirl, "", "x"), "the infer_types of extension Swirl is a str"),
    ],
)
def test_what_is_no_operator_is_refused_when_it_is_made(arguments: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        aioinfer.Extension(*arguments)
