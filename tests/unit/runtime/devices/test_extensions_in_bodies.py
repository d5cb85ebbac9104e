"""Users' operators inside of If, Loop and Scan: their rules tell there, and of what comes out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core, Extension, TensorType
from aioinfer.errors import TensorError

X = np.array([[1, -2], [3, 4]], np.float32)
DOMAIN = "com.acme"


def double(x: np.ndarray, factor: int = 2) -> np.ndarray:
    return x * np.float32(factor)


def doubled_length(
    types: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> list[TensorType | None]:
    """Tell the type of what has each row twice."""
    (kind,) = types
    if kind is None or kind.shape is None or not isinstance(kind.shape[0], int):
        return [None if kind is None else TensorType(kind.dtype)]
    return [TensorType(kind.dtype, (2 * kind.shape[0], *kind.shape[1:]))]


def same(types: Sequence[TensorType | None], _attributes: Mapping[str, Any]) -> Any:
    return [types[0]]


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def custom(op: str, source: str, target: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, [source], [target], f"{op}_{target}", domain=DOMAIN, **attributes)


def model_of(nodes: Sequence[onnx.NodeProto], **weights: np.ndarray) -> onnx.ModelProto:
    """Take x: float32[n,2] and give y = relu of what the nodes call z."""
    graph = helper.make_graph(
        [*nodes, helper.make_node("Relu", ["z"], ["y"], "behind")],
        "m",
        [value("x", shape=["n", 2])],
        [value("y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets)


def looped() -> onnx.ModelProto:
    """Double x three times in a Loop; the last one is z."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"], "go_on"),
            custom("Double", "v", "w", factor=2),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v")],
        [value("go_on", TensorProto.BOOL, []), value("w")],
    )
    loop = helper.make_node("Loop", ["three", "", "x"], ["z"], "loop", body=body)
    return model_of([loop], three=np.int64(3))


def chosen() -> onnx.ModelProto:
    """Make z = double(x) or double(double(x)), by the sign of x's sum."""

    def branch(times: int) -> onnx.GraphProto:
        names = ["x", *[f"b{times}{index}" for index in range(times)]]
        pairs = itertools.pairwise(names)
        nodes = [custom("Double", *pair, factor=2) for pair in pairs]
        return helper.make_graph(nodes, f"times{times}", [], [value(names[-1])])

    return model_of(
        [
            helper.make_node("ReduceSum", ["x"], ["total"], "sum", keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["is_positive"], "greater"),
            helper.make_node(
                "If",
                ["is_positive"],
                ["z"],
                "if",
                then_branch=branch(1),
                else_branch=branch(2),
            ),
        ],
        zero=np.float32(0),
    )


def scanned() -> onnx.ModelProto:
    """Double each row of x in a Scan, whose scan output is z."""
    body = helper.make_graph(
        [custom("Double", "row", "made", factor=2)],
        "body",
        [value("row", shape=[2])],
        [value("made")],
    )
    return model_of([helper.make_node("Scan", ["x"], ["z"], "scan", body=body, num_scan_inputs=1)])


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[np.ndarray], np.ndarray]]] = {
    "Loop": (looped, lambda x: np.maximum(8 * x, 0)),
    "If": (chosen, lambda x: np.maximum((2 if x.sum() > 0 else 4) * x, 0)),
    "Scan": (scanned, lambda x: np.maximum(2 * x, 0)),
}


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:CPU,REFERENCE"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", [same, None], ids=["rule", "no rule"])
def test_it_computes(core: Core, device: str, name: str, rule: Any) -> None:
    make, expected = MODELS[name]
    core.add_extension(Extension("Double", double, DOMAIN, rule))
    with core.load_network(make(), device) as network:
        request = network.create_infer_request()
        for x in (X, -X, X[:1], X):
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], expected(x))


@pytest.mark.parametrize("name", MODELS)
def test_with_a_rule_what_is_behind_the_body_runs_where_it_is_fast(core: Core, name: str) -> None:
    make, _ = MODELS[name]
    core.add_extension(Extension("Double", double, DOMAIN, same))
    with core.load_network(make(), "HETERO:CPU,REFERENCE") as network:
        devices = {node.name: node.affinity for node in network.runtime_graph().nodes}
    assert devices["behind"] == "CPU", devices
    assert devices[name.lower()].startswith("REFERENCE"), devices


def test_a_rule_that_came_later_takes_the_place_of_the_one_before(core: Core) -> None:
    """A model that is read once and loaded twice, with another extension each time."""
    model = core.read_model(chosen())
    for factor, rule in ((2, None), (3, same), (5, same)):
        core.add_extension(
            Extension("Double", lambda x, factor, own=factor: x * np.float32(own), DOMAIN, rule)
        )
        with core.load_network(model, "HETERO:CPU,REFERENCE") as network:
            found = network.create_infer_request().infer_sync({"x": X})["y"]
            np.testing.assert_array_equal(found, np.maximum(factor * X, 0))


def test_a_rule_that_tells_lengths_is_asked_in_the_body_of_each_shape(core: Core) -> None:
    asked: list[Any] = []

    def rule(types: Sequence[TensorType | None], attributes: Mapping[str, Any]) -> Any:
        asked.extend(kind.shape for kind in types if kind is not None)
        return doubled_length(types, attributes)

    def twice(x: np.ndarray, factor: int) -> np.ndarray:
        return np.concatenate([x, x])

    core.add_extension(Extension("Double", twice, DOMAIN, rule))
    with core.load_network(chosen(), "HETERO:CPU,REFERENCE") as network:
        request = network.create_infer_request()
        for rows in (1, 3):
            x = np.ones((rows, 2), np.float32)
            assert request.infer_sync({"x": x})["y"].shape == (2 * rows, 2)
            assert (rows, 2) in asked
            assert request.infer_sync({"x": -x})["y"].shape == (4 * rows, 2)


def test_a_kernel_that_fails_in_a_body_names_its_node(core: Core) -> None:
    def fails(x: np.ndarray, factor: int) -> np.ndarray:
        raise ValueError("not today")

    core.add_extension(Extension("Double", fails, DOMAIN, same))
    with core.load_network(looped(), "HETERO:CPU,REFERENCE") as network:
        request = network.create_infer_request()
        with pytest.raises(TensorError, match=r"Double_w.*not today"):
            request.infer_sync({"x": X})
