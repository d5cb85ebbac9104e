"""Pieces that differ in names alone: they are compiled once, and nobody can tell."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.plugin import CpuPlugin
from aioinfer.backends.cpu.programs.program import Program
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.backends.reference.executable_network import ReferenceNetwork
from aioinfer.backends.reference.plugin import ReferencePlugin
from aioinfer.runtime.interpretation.steps import _Planner

CPU_AND_REFERENCE, TWO_REFERENCES = "HETERO:CPU,REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"
LAYERS = 3


def layers(*ops: str, shape: tuple[int | str, ...] = (2, 8)) -> ModelProto:
    """Make a chain of these operators, again and again, with names of their own in each layer."""
    nodes, last = [], "x"
    for layer in range(LAYERS):
        for place, op in enumerate(ops):
            name = f"layer{layer}.{place}"
            nodes.append(helper.make_node(op, [last], [f"{name}.out"], name=name))
            last = f"{name}.out"
    return _model(nodes, last, shape)


def _model(
    nodes: list[Any],
    output: str,
    shape: tuple[int | str, ...] = (2, 8),
    constants: tuple[Any, ...] = (),
    more_inputs: tuple[Any, ...] = (),
) -> ModelProto:
    def port(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(nodes, "m", [port("x"), *more_inputs], [port(output)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def load(
    core: aioinfer.Core, model: ModelProto, device: str, place_count: int, **config: Any
) -> HeteroNetwork:
    """Give the nodes of a layer to the two devices in turn."""
    first, second = device.partition(":")[2].split(",")
    affinity = {
        node.name: (first, second)[int(node.name.partition(".")[2]) * 2 // place_count]
        for node in model.graph.node
    }
    network = core.load_network(model, device, {"AFFINITY": affinity, **config})
    assert isinstance(network, HeteroNetwork)
    return network


def x() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)}


@pytest.fixture
def count_compiled(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count what is compiled: plans of CPU, steps of REFERENCE, programs of streams."""
    counts = {"cpu": 0, "reference": 0, "programs": 0}

    def counted(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[key] += 1
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(PlanBuilder, "build", counted("cpu", PlanBuilder.build))
    monkeypatch.setattr(_Planner, "plan", counted("reference", _Planner.plan))
    monkeypatch.setattr(Program, "_bind", counted("programs", Program._bind))
    return counts


def test_what_is_alike_is_compiled_once(
    core: aioinfer.Core, count_compiled: dict[str, int]
) -> None:
    with load(core, layers("Sigmoid", "Exp", "Neg", "Abs"), CPU_AND_REFERENCE, 4) as network:
        assert len(network.networks) == 2 * LAYERS
        assert (count_compiled["cpu"], count_compiled["reference"]) == (1, 1)
        request = network.create_infer_request()
        first = request.infer_sync(x())
        expected = x()["x"]
        for _ in range(LAYERS):
            expected = np.abs(-np.exp(1 / (1 + np.exp(-expected))))
        np.testing.assert_allclose(next(iter(first.values())), expected, rtol=1e-5)
        np.testing.assert_array_equal(
            next(iter(request.infer_sync(x()).values())), next(iter(first.values()))
        )
        assert count_compiled["programs"] <= 2  # a stream, and the lane of callers


@pytest.mark.parametrize(
    ("device", "is_exportable"),
    [
        (CPU_AND_REFERENCE, False),
        (CPU_AND_REFERENCE, True),
        (TWO_REFERENCES, True),
        ("HETERO:CPU.0,CPU", False),
    ],
)
def test_nothing_tells_a_piece_that_is_alike_from_one_that_was_compiled_by_itself(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, device: str, is_exportable: bool
) -> None:
    model = layers("HardSwish", "Softmax", "Neg", "Abs")
    config = {"PERF_COUNT": True, "EXPORTABLE": is_exportable}
    pictures = []
    for is_shared in (True, False):
        if not is_shared:
            for plugin in (CpuPlugin, ReferencePlugin):
                monkeypatch.setattr(plugin, "load_alike", lambda *_: None)
        own = dict.fromkeys(device.partition(":")[2].split(","), config)
        with load(core, model, device, 4, DEVICE_PROPERTIES=own) as network:
            request = network.create_infer_request()
            outputs = request.infer_sync(x())
            profile = [
                (node.name, node.op, node.original_nodes, node.implementation, node.layout)
                for node in request.profiling()
            ]
            spans = {(span.stage, span.subgraph) for span in network.trace()}
            texts = [str(part.runtime_graph()) for part in network.networks]
            facts = [
                [node.metadata for node in part.runtime_graph().nodes] for part in network.networks
            ]
            told = network.explain(), [part.explain() for part in network.networks]
            plans = [part.statistics().plans.kept_bytes for part in network.networks]
            can_export = is_exportable or "REFERENCE" not in device
            blob = network.export() if can_export else b""
        pictures.append((outputs, profile, sorted(spans), texts, facts, told, plans, blob))
    shared, alone = pictures
    for name, array in shared[0].items():
        np.testing.assert_array_equal(array, alone[0][name])
    assert len({name for name, *_ in shared[1]}) == len(shared[1]) >= 3 * LAYERS
    assert shared[1:] == alone[1:]
    if shared[-1]:
        with core.import_network(shared[-1], device) as imported:
            again = imported.create_infer_request().infer_sync(x())
        np.testing.assert_array_equal(next(iter(again.values())), next(iter(shared[0].values())))


@pytest.mark.parametrize("device", ["CPU", "REFERENCE.0"])
def test_an_error_names_the_node_of_its_own_piece(core: aioinfer.Core, device: str) -> None:
    nodes, last = [], "x"
    for layer in range(LAYERS):
        names = [f"layer{layer}.{place}" for place in range(2)]
        nodes.append(
            helper.make_node("Gather", [last, f"i{layer}"], [names[0] + "o"], name=names[0])
        )
        nodes.append(helper.make_node("Neg", [names[0] + "o"], [names[1] + "o"], name=names[1]))
        last = names[1] + "o"
    rows = [
        helper.make_tensor_value_info(f"i{layer}", TensorProto.INT64, [2])
        for layer in range(LAYERS)
    ]
    model = _model(nodes, last, more_inputs=tuple(rows))
    with load(core, model, f"HETERO:{device},REFERENCE.1", 2) as network:
        request = network.create_infer_request()
        for bad in range(LAYERS):
            given = {f"i{layer}": np.array([0, 1]) for layer in range(LAYERS)}
            given[f"i{bad}"] = np.array([0, 7])
            with pytest.raises(aioinfer.errors.TensorError, match=f"layer{bad}.0") as caught:
                request.infer_sync({**x(), **given})
            assert caught.value.node == f"layer{bad}.0"


def test_pieces_with_weights_of_their_own_stay_apart(core: aioinfer.Core) -> None:
    source = np.random.default_rng(2)
    weights = [source.standard_normal((8, 8)).astype(np.float32) for _ in range(LAYERS)]
    nodes, last, expected = [], "x", x()["x"]
    for layer in range(LAYERS):
        names = [f"layer{layer}.{place}" for place in range(2)]
        nodes.append(
            helper.make_node("MatMul", [last, f"w{layer}"], [names[0] + "o"], name=names[0])
        )
        nodes.append(helper.make_node("Tanh", [names[0] + "o"], [names[1] + "o"], name=names[1]))
        last, expected = names[1] + "o", np.tanh(expected @ weights[layer])
    constants = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)]
    with load(core, _model(nodes, last, constants=tuple(constants)), CPU_AND_REFERENCE, 2) as made:
        found = made.create_infer_request().infer_sync(x())
    np.testing.assert_allclose(found[last], expected, rtol=1e-4, atol=1e-5)


def test_nothing_of_what_is_shared_outlives_the_close(core: aioinfer.Core) -> None:
    network = load(core, layers("Sigmoid", "Neg"), CPU_AND_REFERENCE, 2)
    network.create_infer_request().infer_sync(x())
    held = [weakref.ref(part) for part in network.networks]
    plans = [weakref.ref(part.only_plan) for part in network.networks if hasattr(part, "only_plan")]
    assert len(plans) == LAYERS
    network.close()
    del network
    gc.collect()
    assert not any(ref() for ref in (*held, *plans))


def test_steps_that_are_shared_are_given_back_by_the_close_itself(core: aioinfer.Core) -> None:
    network = load(core, layers("Sigmoid", "Neg"), TWO_REFERENCES, 2)
    pieces = [part for part in network.networks if isinstance(part, ReferenceNetwork)]
    given = x()["x"]
    plans = [part.request_plan({part.inputs[0].name: given}).plan for part in pieces]
    held = [weakref.ref(plan) for plan in plans]
    del plans
    assert len(held) == 2 * LAYERS
    network.close()
    assert not any(ref() for ref in held)


def test_pieces_that_a_users_kernel_computes_are_loaded_each_by_itself(
    core: aioinfer.Core,
) -> None:
    calls: list[int] = []

    def negative(array: np.ndarray) -> np.ndarray:
        calls.append(1)
        return -array

    core.add_extension(aioinfer.Extension("Neg", negative))
    with load(core, layers("Sigmoid", "Neg"), CPU_AND_REFERENCE, 2) as network:
        network.create_infer_request().infer_sync(x())
    assert len(calls) == LAYERS
