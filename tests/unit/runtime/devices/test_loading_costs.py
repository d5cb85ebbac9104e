"""What loading costs grows with the size of a model and not faster; counted in calls, not in time.

A call is one of Python's, or of C from Python, on the thread that loads.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.runtime.devices.plugin import Plugin
from aioinfer.runtime.graph import Graph, Model
from aioinfer.runtime.passes import CommonSubexpressions
from exhaustive import all_but

DEVICES = ["CPU", "REFERENCE", "HETERO:CPU,REFERENCE"]
MOST_GROWTH = 2.3
"""Of calls when there are twice as many nodes."""
MOST_CALLS_OF_A_SUBGRAPH = 1800
"""Of one node on REFERENCE, its share of the whole included: 1,620 when this was written."""


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        for device in DEVICES:
            with made.load_network(chain(2), device):
                pass
        yield made


def model_of(
    nodes: list[onnx.NodeProto], output: str, constants: list[onnx.TensorProto] | None = None
) -> bytes:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", output))
    x.type.tensor_type.shape.dim.add(dim_value=4)
    y.type.tensor_type.ClearField("shape")
    graph = helper.make_graph(nodes, "g", [x], [y], constants or [])
    opsets = [helper.make_opsetid("", 21)]
    made: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return made


def chain(count: int) -> bytes:
    nodes = [
        helper.make_node("Add", ["x" if i == 0 else f"v{i - 1}", "x"], [f"v{i}"])
        for i in range(count)
    ]
    return model_of(nodes, f"v{count - 1}")


def backwards(count: int) -> bytes:
    proto = onnx.load_from_string(chain(count))
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    made: bytes = proto.SerializeToString()
    return made


def skips(count: int) -> bytes:
    names = ["x", *(f"v{i}" for i in range(count))]
    nodes = [
        helper.make_node("Add", [names[i], names[max(i - 50, 0)]], [names[i + 1]])
        for i in range(count)
    ]
    return model_of(nodes, names[-1])


def fan(count: int) -> bytes:
    nodes = [helper.make_node("LeakyRelu", ["x"], [f"v{i}"], alpha=i / count) for i in range(count)]
    return model_of([*nodes, helper.make_node("Sum", [f"v{i}" for i in range(count)], ["y"])], "y")


def weights(count: int) -> bytes:
    constants = [numpy_helper.from_array(np.full(4, i, np.float32), f"w{i}") for i in range(count)]
    nodes = [
        helper.make_node("Mul", ["x" if i == 0 else f"v{i - 1}", f"w{i}"], [f"v{i}"])
        for i in range(count)
    ]
    return model_of(nodes, f"v{count - 1}", constants)


def unused_weights(count: int) -> bytes:
    constants = [numpy_helper.from_array(np.zeros(1, np.int8), f"w{i}") for i in range(count)]
    return model_of([helper.make_node("Relu", ["x"], ["y"])], "y", constants)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_what_only_the_core_holds_is_rewritten_and_not_copied(
    device: str, core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: Model) -> Model:
        raise AssertionError(f"{model!r} is copied")

    x = np.arange(4, dtype=np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(Model, "copy", refuse)
        network = core.load_network(weights(3), device)
    with network:
        assert len(list(network.runtime_graph().nodes)) >= 1
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(x)["v2"], x * 0)


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_caller_holds_stays_as_it_is(device: str, core: aioinfer.Core) -> None:
    model = core.read_model(skips(60))
    before = str(model)
    x = np.arange(4, dtype=np.float32)
    results = []
    for _ in range(2):
        with core.load_network(model, device) as network:
            results.append(network.create_infer_request().infer_sync(x)["v59"])
    assert str(model) == before
    np.testing.assert_array_equal(*results)


def calls_of(action: Callable[[], object]) -> int:
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("device", all_but(DEVICES[:1], DEVICES))
@pytest.mark.parametrize(
    "make", all_but([chain], [chain, backwards, skips, fan, weights, unused_weights])
)
def test_calls_grow_with_the_nodes(
    make: Callable[[int], bytes], device: str, core: aioinfer.Core
) -> None:
    def load(model: bytes) -> None:
        core.load_network(model, device).close()

    models = [make(count) for count in (400, 800)]
    small, large = (calls_of(functools.partial(load, model)) for model in models)
    assert large < MOST_GROWTH * small


def test_calls_grow_with_the_subgraphs(core: aioinfer.Core) -> None:
    devices = ["REFERENCE.0", "REFERENCE.1"]

    def load(model: Model) -> None:
        affinity = {node.name: devices[i % 2] for i, node in enumerate(model.graph.nodes)}
        network = core.load_network(model, f"HETERO:{','.join(devices)}", {"AFFINITY": affinity})
        assert network.get_metric("NUMBER_OF_SUBGRAPHS") == len(affinity)
        network.close()

    models = [core.read_model(chain(count)) for count in (150, 300)]
    load(models[0])
    small, large = (calls_of(functools.partial(load, model)) for model in models)
    assert large < MOST_GROWTH * small
    assert large < MOST_CALLS_OF_A_SUBGRAPH * 300


def test_the_system_is_asked_once_for_all_subgraphs(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "aioinfer.executors.cpu_allowance.read_text", lambda path: asked.append(path) and None
    )
    counts = []
    for count in (2, 40):
        asked.clear()
        model = core.read_model(chain(count))
        affinity = {node.name: f"REFERENCE.{i % 2}" for i, node in enumerate(model.graph.nodes)}
        config = {"AFFINITY": affinity}
        with core.load_network(model, "HETERO:REFERENCE.0,REFERENCE.1", config):
            counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_what_is_asked_of_a_device_is_resolved_once_for_all_its_subgraphs(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, resolved = Plugin.configuration, []

    def note(plugin: Plugin, device_id: str | None, given: Any = None) -> Any:
        resolved.append(device_id)
        return resolve(plugin, device_id, given)

    monkeypatch.setattr(Plugin, "configuration", note)
    counts = []
    for count in (2, 40):
        resolved.clear()
        model = core.read_model(chain(count))
        affinity = {node.name: f"REFERENCE.{i % 2}" for i, node in enumerate(model.graph.nodes)}
        config = {"AFFINITY": affinity}
        with core.load_network(model, "HETERO:REFERENCE.0,REFERENCE.1", config):
            counts.append(len(resolved))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_passes_that_found_nothing_do_not_look_again(
    device: str, core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, looked = CommonSubexpressions.find, []

    def note(item: CommonSubexpressions, graph: Graph) -> Any:
        looked.append(len(graph))
        return find(item, graph)

    monkeypatch.setattr(CommonSubexpressions, "find", note)
    core.load_network(weights(3), device).close()
    assert looked == [3]
    looked.clear()
    twice = onnx.load_from_string(weights(3))
    twice.graph.node.append(helper.make_node("Identity", ["v2"], ["y"]))
    twice.graph.output[0].name = "y"
    core.load_network(twice.SerializeToString(), device).close()
    assert len(looked) > 1
