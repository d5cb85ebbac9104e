"""Scans without a memory as operators on all slices, against the walk that REFERENCE makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.errors import AioInferError
from aioinfer.runtime.passes import DeadCode, run_passes
from aioinfer.runtime.passes.fusion.scan_batching import ScanBatching

node = helper.make_node
Arrays = dict[str, Any]
AXES = {"last": np.array([-1]), "first": np.array([0]), "both": np.array([0, 1])}
RANDOM = np.random.default_rng(5)
STATE = RANDOM.normal(size=(4, 3)).astype(np.float32)
ROWS = RANDOM.normal(size=(6, 3)).astype(np.float32)
KEPT = node("Identity", ["state"], ["same"])


def scan(
    nodes: Sequence[NodeProto], *, open_length: bool = False, outputs: int = 1, **attributes: Any
) -> bytes:
    """Scan rows with a state: ``nodes`` make ``same`` and the results ``r0``, ``r1``."""

    def info(name: str, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    results = [f"r{index}" for index in range(outputs)]
    body = helper.make_graph(
        list(nodes),
        "body",
        [info("state", STATE.shape), info("row", ROWS.shape[1:])],
        [info("same"), *map(info, results)],
        [numpy_helper.from_array(array, name) for name, array in AXES.items()],
    )
    names = [f"y{index}" for index in range(outputs)]
    walk = node(
        "Scan", ["state_in", "rows"], ["state_out", *names], "walk",
        body=body, num_scan_inputs=1, **attributes,
    )  # fmt: skip
    length = "n" if open_length else len(ROWS)
    graph = helper.make_graph(
        [walk],
        "g",
        [info("state_in", STATE.shape), info("rows", [length, 3]), info("outer", [3])],
        [info("state_out"), *map(info, names)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


def given(count: int = len(ROWS)) -> Arrays:
    rows = np.concatenate([ROWS, ROWS])[:count]
    return {"state_in": STATE, "rows": rows, "outer": np.ones(3, np.float32)}


def operators_of(core: Core, model: bytes) -> list[str]:
    read = core.read_model(model)
    run_passes(read, [ScanBatching(), DeadCode()])
    return [item.op_type for item in read.graph.nodes]


BATCHED: dict[str, list[NodeProto]] = {
    "rows alone": [KEPT, node("Exp", ["row"], ["r0"])],
    "with a state of more axes, reduced": [
        KEPT,
        node("Sub", ["state", "row"], ["d"]),
        node("ReduceSumSquare", ["d", "last"], ["r0"], keepdims=0),
    ],
    "of the first axis": [
        KEPT,
        node("Mul", ["row", "row"], ["m"]),
        node("ReduceSum", ["m", "first"], ["r0"], keepdims=1),
    ],
    "of all axes": [KEPT, node("ReduceMax", ["row"], ["r0"], keepdims=0)],
    "with a captured value": [KEPT, node("Add", ["row", "outer"], ["r0"])],
    "of what is made of states alone": [
        KEPT,
        node("ReduceMean", ["state", "first"], ["mean"], keepdims=0),
        node("Where", ["flags", "row", "mean"], ["r0"]),
    ],
}
BATCHED["of what is made of states alone"].insert(1, node("Greater", ["row", "outer"], ["flags"]))
WALKED: dict[str, list[NodeProto]] = {
    "a state that changes": [
        node("Add", ["state", "row"], ["same"]),
        node("Exp", ["row"], ["r0"]),
    ],
    "what needs far more memory at once": [
        KEPT,
        node("Sub", ["state", "row"], ["d"]),
        node("Exp", ["d"], ["e"]),
        node("ReduceSum", ["e", "both"], ["r0"], keepdims=0),
    ],
    "an operator that is not known to treat rows alone": [
        KEPT,
        node("CumSum", ["row", "start"], ["r0"]),
    ],
    "bounds of its own for each iteration": [
        KEPT,
        node("ReduceMin", ["row"], ["least"], keepdims=0),
        node("Clip", ["state", "least"], ["c"]),
        node("Mul", ["c", "row"], ["r0"]),
    ],
    "a difference that is reduced along its rows": [
        KEPT,
        node("Sub", ["state", "row"], ["d"]),
        node("ReduceSumSquare", ["d", "first"], ["r0"], keepdims=0),
    ],
    "what is the same in all iterations": [KEPT, node("Exp", ["state"], ["r0"])],
}
WALKED["an operator that is not known to treat rows alone"].insert(
    1, node("Constant", [], ["start"], value_int=0)
)


@pytest.mark.parametrize("open_length", [False, True])
@pytest.mark.parametrize("name", [*BATCHED, *WALKED])
def test_results_are_those_of_the_walk(core: Core, name: str, open_length: bool) -> None:
    model = scan({**BATCHED, **WALKED}[name], open_length=open_length)
    inputs = [given(), given(9), given(1)] if open_length else [given()]
    with core.load_network(model, "CPU") as network, core.load_network(model, "REFERENCE") as walk:
        request, wanted = network.create_infer_request(), walk.create_infer_request()
        for item in inputs:
            found = request.infer_sync(item)
            for key, right in wanted.infer_sync(item).items():
                assert (found[key].shape, found[key].dtype) == (right.shape, right.dtype)
                np.testing.assert_allclose(found[key], right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BATCHED)
def test_nothing_is_scanned_any_more(core: Core, name: str) -> None:
    assert "Scan" not in operators_of(core, scan(BATCHED[name]))


@pytest.mark.parametrize("name", WALKED)
def test_a_scan_stays_with(core: Core, name: str) -> None:
    assert "Scan" in operators_of(core, scan(WALKED[name]))


@pytest.mark.parametrize(
    "attributes",
    [{"scan_input_directions": [1]}, {"scan_output_directions": [1]}, {"scan_output_axes": [1]}],
)
def test_other_orders_are_left_to_the_walk(core: Core, attributes: dict[str, Any]) -> None:
    assert "Scan" in operators_of(core, scan(BATCHED["rows alone"], **attributes))


def test_each_result_is_made(core: Core) -> None:
    body = [KEPT, node("Exp", ["row"], ["r0"]), node("Neg", ["row"], ["r1"])]
    found = operators_of(core, scan(body, outputs=2))
    assert set(found) == {"Exp", "Identity", "Neg"}


def scan_of(
    nodes: Sequence[NodeProto], inputs: dict[str, list[Any]], dtype: int = TensorProto.FLOAT
) -> bytes:
    """Scan all inputs, whose slices the body calls ``x0``, ``x1``, and makes ``r0`` of."""

    def info(name: str, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    slices = [info(f"x{index}", shape[1:]) for index, shape in enumerate(inputs.values())]
    axes = [numpy_helper.from_array(array, name) for name, array in AXES.items()]
    body = helper.make_graph(list(nodes), "body", slices, [info("r0")], axes)
    walk = node("Scan", list(inputs), ["y"], "walk", body=body, num_scan_inputs=len(inputs))
    graph = helper.make_graph(
        [walk],
        "g",
        [info(name, shape) for name, shape in inputs.items()],
        [info("y")],
        [numpy_helper.from_array(STATE, "rows_of_all")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


def _infer_on_cpu(core: Core, model: bytes, arrays: Arrays) -> Arrays:
    with core.load_network(model, "CPU") as network:
        return network.create_infer_request().infer_sync(arrays)


@pytest.mark.parametrize("lengths", [("n", "k"), (None, None), (4, 1)])
def test_inputs_of_different_lengths_are_refused_as_the_walk_refuses_them(
    core: Core, lengths: tuple[Any, Any]
) -> None:
    inputs = {"a": [lengths[0], 3], "b": [lengths[1], 3]}
    model = scan_of([node("Add", ["x0", "x1"], ["r0"])], inputs)
    arrays = {"a": np.ones((4, 3), np.float32), "b": np.ones((1, 3), np.float32)}
    with pytest.raises(AioInferError, match="length"):
        _infer_on_cpu(core, model, arrays)


def test_inputs_of_one_open_length_are_batched(core: Core) -> None:
    model = scan_of([node("Add", ["x0", "x1"], ["r0"])], {"a": ["n", 3], "b": ["n", 3]})
    assert "Scan" not in operators_of(core, model)


def test_a_walk_in_float64_stays_one_that_cpu_can_run(core: Core) -> None:
    model = scan_of([node("Exp", ["x0"], ["r0"])], {"a": ["n", 3]}, TensorProto.DOUBLE)
    rows = np.ones((4, 3))
    np.testing.assert_allclose(_infer_on_cpu(core, model, {"a": rows})["y"], np.exp(rows))


@pytest.mark.parametrize("length", [1, "k"])
def test_a_difference_that_no_kernel_leaves_out_stays_with_the_walk(
    core: Core, length: Any
) -> None:
    body = [
        node("Sub", ["rows_of_all", "x0"], ["d"]),
        node("ReduceSumSquare", ["d", "last"], ["r0"], keepdims=0),
    ]
    assert "Scan" not in operators_of(core, scan_of(body, {"a": ["n", 3]}))
    assert "Scan" in operators_of(core, scan_of(body, {"a": ["n", length]}))
    assert "Scan" in operators_of(core, scan_of(body, {"a": ["n", 6, 1, 3]}))
