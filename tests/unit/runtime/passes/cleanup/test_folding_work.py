import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Graph, Model, Node, TensorType, Value
from aioinfer.runtime.operators import plain_operators
from aioinfer.runtime.passes import ConstantFolding, DeadCode, run_passes
from aioinfer.runtime.passes.cleanup import constant_folding as folding
from aioinfer.runtime.passes.cleanup.folding_work import predict_work


def node_of(op_type: str, *arrays: np.ndarray[Any, Any] | None, **attributes: Any) -> Node:
    given = [None if array is None else Value(f"c{i}", constant=array) for i, array in
             enumerate(arrays)]  # fmt: skip
    return Node(op_type, given, [Value("y")], attributes, name="n")


def remaining(model: Model, **options: Any) -> list[str]:
    run_passes(model, [ConstantFolding(**options), DeadCode()])
    return [node.op for node in model.graph.nodes]


def model_of(node: Node, *shape: int) -> Model:
    graph = Graph("g")
    for value in node.inputs:
        if value is not None:
            graph.add_initializer(value)
    graph.append(node)
    node.outputs[0].type = TensorType(DType.FLOAT32, shape)
    graph.outputs = list(node.outputs)
    return Model(graph, {"": 21})


def test_a_resize_of_constants_needs_no_onnx() -> None:
    program = """
import sys, numpy as np
from aioinfer.runtime.graph import *
from aioinfer.runtime.passes import ConstantFolding, run_passes
x = Value("x", constant=np.ones((1, 16, 16, 16), np.float32))
scales = Value("s", constant=np.array([1, 1, 2.5, 2.5], np.float32))
y = Value("y", TensorType(DType.FLOAT32, (1, 16, 40, 40)))
graph = Graph("g")
graph.add_initializer(x), graph.add_initializer(scales)
graph.append(Node("Resize", [x, None, scales], [y], {"mode": "cubic"}, name="n"))
graph.outputs = [y]
assert run_passes(Model(graph, {"": 21}), [ConstantFolding()]).patch_count == 1
assert "onnx" not in sys.modules
assert abs(graph.outputs[0].constant - 1).max() < 1e-6
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=170)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 8, 4096), (4096, 8, 1)])
def test_a_resize_makes_nothing_larger_on_its_way(
    mode: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    take = np.take

    def watched(array: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
        made = take(array, indices, axis)
        sizes.append(made.size)
        return made

    monkeypatch.setattr(np, "take", watched)
    node = node_of("Resize", np.ones(shape, "f"), None, None, np.array(shape[::-1]), mode=mode)
    resize = plain_operators.find_plain(node, {})
    assert resize is not None
    x, _, _, target = (None if value is None else value.constant for value in node.inputs)
    assert resize(x, None, None, target, mode=mode).shape == shape[::-1]
    assert sizes
    assert max(sizes) <= 8 * 4096


def test_what_is_more_work_than_the_bound_is_left_to_the_device() -> None:
    def model() -> Model:
        ones = np.ones(64, np.float32)
        return model_of(node_of("Einsum", ones, ones.copy(), equation="i,j->"))

    assert remaining(model()) == []
    assert remaining(model(), limit_work=1000) == ["Einsum"]


def test_work_that_grows_with_the_constants_alone_has_no_bound() -> None:
    model = model_of(node_of("Neg", np.ones(64, np.float32)), 64)
    assert remaining(model, limit_work=1) == []


def test_all_nodes_of_a_run_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "TOTAL_WORK", 3 * 2 * 64 * 64)
    graph = Graph("g")
    ones = graph.add_initializer(Value("a", constant=np.ones(64, np.float32)))
    for number in range(8):
        made = Value(f"y{number}", TensorType(DType.FLOAT32, ()))
        equation = {"equation": "i,j->"}
        graph.append(Node("Einsum", [ones, ones], [made], equation, name=f"n{number}"))
        graph.outputs = [*graph.outputs, made]
    left = remaining(Model(graph, {"": 21}))
    assert 0 < len(left) < 8


HUGE = np.ones((1000, 1000), np.float32)
EXPENSIVE = {
    "matmul": (node_of("MatMul", *[np.broadcast_to(1.0, (8192, 8192))] * 2), 8192**2),
    "integers": (node_of("MatMulInteger", *[np.ones((999, 999), np.int8)] * 2), 999**2),
    "einsum": (node_of("Einsum", *[np.ones(99)] * 5, equation="a,b,c,d,e->"), 1),
    "dots": (node_of("Einsum", *[HUGE] * 2, equation="...,...a->a"), 1000),
    "grid": (node_of("GridSample", np.ones((1, 1, 9, 9)), np.ones((1, 99, 99, 2))), 9801),
    "boxes": (node_of("NonMaxSuppression", np.ones((1, 20000, 4)), np.ones((1, 9, 20000))), 3),
    "lstm": (node_of("LSTM", np.ones((90000, 1, 1)), np.ones((1, 4, 1)), np.ones((1, 4, 1))), 9),
    "filter": (
        node_of(
            "Resize", np.ones((9, 9**6)), None, None, np.array([9**6, 9]), antialias=1, mode="cubic"
        ),
        9**7,
    ),
    "inverse": (node_of("Det", np.ones((2000, 2000))), 1),
}


@pytest.mark.parametrize("case", EXPENSIVE)
def test_operators_that_take_long_are_told_before(case: str) -> None:
    node, made = EXPENSIVE[case]
    work = predict_work(node, made)
    assert work is not None
    assert work > folding.LIMIT_WORK


@pytest.mark.parametrize(
    "op_type", ["RoiAlign", "DeformConv", "TfIdfVectorizer", "RegexFullMatch", "ImageDecoder"]
)
def test_operators_whose_work_nobody_can_tell_are_left_to_the_device(op_type: str) -> None:
    model = model_of(node_of(op_type, np.ones(1, np.float32)), 1)
    assert remaining(model) == [op_type]


def test_operators_with_wrong_inputs_have_no_prediction() -> None:
    assert predict_work(node_of("Einsum", np.ones(3), equation="ij"), 1) is None
    assert predict_work(node_of("Einsum", np.ones(3)), 1) is None
    assert predict_work(node_of("LSTM", np.ones(3)), 1) is None
    assert predict_work(node_of("Gemm", None), 1) is None


@pytest.mark.parametrize(
    ("scales", "sizes"), [([np.nan] * 2, None), ([1e30] * 2, None), (None, [-1, 2]), (None, None)]
)
def test_a_resize_to_no_shape_is_not_folded(scales: Any, sizes: Any) -> None:
    inputs = [
        np.ones((2, 2), np.float32),
        None,
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes),
    ]
    assert remaining(model_of(node_of("Resize", *inputs), 2, 2)) == ["Resize"]


def test_a_resize_that_is_larger_than_it_is_declared_is_not_folded() -> None:
    inputs = [np.ones((1, 1), "f"), None, None, np.array([10**6, 10**6])]
    assert remaining(model_of(node_of("Resize", *inputs), 1, 1)) == ["Resize"]
