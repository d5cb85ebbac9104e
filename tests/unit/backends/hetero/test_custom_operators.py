"""Users' operators beside devices that compute the rest of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import NotSupportedError, TensorError, UnsupportedOpError
from aioinfer.runtime.graph import DType, TensorType

X = np.array([[1, -2], [3, 4]], np.float32)
DEVICE = "HETERO:CPU,REFERENCE"


def same(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
    return [types[0]]


def model_of(
    *nodes: onnx.NodeProto, lengths: Sequence[int | str] = ("n", 2), **weights: np.ndarray
) -> onnx.ModelProto:
    """Take x: float32 of these lengths, and give y."""
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, lengths)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def swirl_node(source: str, target: str, name: str = "swirl") -> onnx.NodeProto:
    return helper.make_node("Swirl", [source], [target], name, domain="com.acme")


def in_the_middle(lengths: Sequence[int | str] = ("n", 2)) -> onnx.ModelProto:
    return model_of(
        helper.make_node("Relu", ["x"], ["a"], "before"),
        swirl_node("a", "b"),
        helper.make_node("Softmax", ["b"], ["c"], "behind"),
        helper.make_node("Relu", ["c"], ["y"], "last"),
        lengths=lengths,
    )


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def places(network: Any) -> list[tuple[str, ...]]:
    return [
        (piece.device, *(node.name for node in piece.nodes))
        for piece in network.partition.subgraphs
    ]


def swirl(rule: Any = same) -> aioinfer.Extension:
    return aioinfer.Extension("Swirl", lambda x: x * np.float32(3), "com.acme", rule)


@pytest.mark.parametrize("lengths", [("n", 2), (2, 2), (None, None)])
def test_what_is_behind_an_operator_with_a_type_rule_runs_where_it_is_fast(
    core: aioinfer.Core, lengths: Sequence[int | str]
) -> None:
    core.add_extension(swirl())
    with core.load_network(in_the_middle(lengths), DEVICE) as network:
        assert places(network) == [
            ("CPU", "before"),
            ("REFERENCE", "swirl"),
            ("CPU", "behind", "last"),
        ]
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_allclose(found, softmax(np.maximum(X, 0) * 3), rtol=1e-6)


def test_what_is_of_unknown_type_is_refused_with_the_reason_and_runs_elsewhere(
    core: aioinfer.Core,
) -> None:
    core.add_extension(swirl(None))
    answers = core.query_network(in_the_middle(), "CPU")
    for node in ("behind", "last"):
        assert (
            "is unknown; give the extension of com.acme::Swirl infer_types" in answers[node].reason
        )
    with core.load_network(in_the_middle(), DEVICE) as network:
        assert places(network) == [("CPU", "before"), ("REFERENCE", "swirl", "behind", "last")]
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_allclose(found, softmax(np.maximum(X, 0) * 3), rtol=1e-6)


def test_a_rule_that_tells_an_element_type_alone_suffices(core: aioinfer.Core) -> None:
    core.add_extension(swirl(lambda types, _: [TensorType(DType.FLOAT32)]))
    with core.load_network(in_the_middle(), DEVICE) as network:
        assert places(network)[-1] == ("CPU", "behind", "last")
        for rows in (X, X[:1]):
            found = network.create_infer_request().infer_sync(rows)["y"]
            np.testing.assert_allclose(found, softmax(np.maximum(rows, 0) * 3), rtol=1e-6)


def test_rules_follow_each_other_through_what_only_onnx_infers(core: aioinfer.Core) -> None:
    core.add_extension(swirl())
    then = helper.make_graph(
        [swirl_node("b", "t", "inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["e"], "neg")],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    model = model_of(
        swirl_node("x", "b"),
        helper.make_node("ReduceSum", ["b"], ["sum"], "sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_large"], "greater"),
        helper.make_node("If", ["is_large"], ["i"], "if", then_branch=then, else_branch=other),
        swirl_node("i", "s", "second"),
        helper.make_node("Relu", ["s"], ["y"], "last"),
        zero=np.float32(0),
    )
    with core.load_network(model, DEVICE) as network:
        assert places(network)[-1] == ("CPU", "last")
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_allclose(found, np.maximum(X * 27, 0))


def test_shapes_given_ahead_go_through_a_rule_to_the_pieces_behind(core: aioinfer.Core) -> None:
    core.add_extension(swirl())
    config = {"INPUT_SHAPES": {"x": (2, 2)}}
    with core.load_network(in_the_middle(), DEVICE, config) as network:
        network.create_infer_request().infer_sync(X)
        assert network.statistics().plans.build_count == len(places(network))


def test_an_override_counts_where_its_device_computes_the_node(core: aioinfer.Core) -> None:
    def halves(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
        return [TensorType(DType.FLOAT16, (7,))]

    core.add_extension(aioinfer.Extension("Neg", lambda x: x * np.float32(5), infer_types=halves))
    core.add_extension(
        aioinfer.Extension("Identity", lambda x: x + np.float32(1), infer_types=same)
    )
    model = model_of(
        helper.make_node("Neg", ["x"], ["a"], "neg"),
        helper.make_node("Identity", ["a"], ["b"], "same"),
        helper.make_node("Relu", ["b"], ["y"], "last"),
    )
    config = {"AFFINITY": {"same": "REFERENCE"}}
    with core.load_network(model, DEVICE, config) as network:
        assert places(network) == [("CPU", "neg"), ("REFERENCE", "same"), ("CPU", "last")]
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_array_equal(found, np.maximum(1 - X, 0))


def test_a_result_that_breaks_the_rule_is_told_and_the_network_goes_on(core: aioinfer.Core) -> None:
    is_bad = True

    def kernel(x: np.ndarray) -> np.ndarray:
        return x.reshape(-1) if is_bad else x

    core.add_extension(aioinfer.Extension("Swirl", kernel, "com.acme", same))
    with core.load_network(in_the_middle(), DEVICE) as network:
        request = network.create_infer_request()
        with pytest.raises(TensorError, match=r"swirl.* output 0 is \[4\], and .* \[2,2\]"):
            request.infer_sync(X)
        is_bad = False
        np.testing.assert_allclose(request.infer_sync(X)["y"], softmax(np.maximum(X, 0)), rtol=1e-6)


def test_hetero_names_the_devices_on_which_the_model_would_run(core: aioinfer.Core) -> None:
    with pytest.raises(UnsupportedOpError) as refusal:
        core.load_network(in_the_middle(), "HETERO", {"MULTI_DEVICE_PRIORITIES": "CPU"})
    assert refusal.value.way_out == (
        "none of these devices has com.acme::Swirl: give it to REFERENCE with Core.add_extension, "
        "and load the model on 'HETERO:CPU,REFERENCE'"
    )
    core.add_extension(swirl())
    with pytest.raises(UnsupportedOpError, match=r"load it on 'HETERO:CPU,REFERENCE'$"):
        core.load_network(in_the_middle(), "HETERO:CPU")
    config = {"AFFINITY": {"swirl": "CPU"}}
    with pytest.raises(UnsupportedOpError, match="change the affinity that asks for the wrong"):
        core.load_network(in_the_middle(), DEVICE, config)


def test_auto_names_the_devices_on_which_the_model_would_run(core: aioinfer.Core) -> None:
    with pytest.raises(NotSupportedError) as refusal:
        core.load_network(in_the_middle(), "AUTO:CPU")
    assert str(refusal.value).endswith(
        "None of these devices has com.acme::Swirl: give it to REFERENCE with Core.add_extension, "
        "and load the model on 'HETERO:CPU,REFERENCE'"
    )
    core.add_extension(swirl())
    with pytest.raises(NotSupportedError, match=r"Load it on 'HETERO:CPU,REFERENCE'$"):
        core.load_network(in_the_middle(), "AUTO:CPU")
