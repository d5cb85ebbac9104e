"""What plans say of themselves: ids, implementations, layouts, precisions, times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.plans.node_facts import described_graph, node_facts
from aioinfer.backends.cpu.plans.subgraph_id import SubgraphId
from aioinfer.backends.cpu.programs.node_times import node_times
from aioinfer.runtime.graph import DType, Graph, check_graph
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import plan_of

node = helper.make_node
CHANCE = np.random.default_rng(0)
X = CHANCE.standard_normal((1, 32, 8, 8)).astype(np.float32)
WEIGHTS = CHANCE.standard_normal((32, 32, 3, 3)).astype(np.float32)
NODES = [
    node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
    node("Relu", ["a"], ["b"], "act"),
    node("Reshape", ["b", "flat"], ["c"], "flatten"),
    node("Softmax", ["c"], ["y"], "prob"),
]


def model(nodes: list[object] = NODES, weights: np.ndarray = WEIGHTS) -> object:
    return model_of(nodes, {"x": X}, constants={"w": weights, "flat": np.array([1, -1])})


def test_an_id_is_the_same_in_every_process(core: Core) -> None:
    here = plan_of(core, model(), {"x": X}).id
    code = (
        "from aioinfer import Core\n"
        "from unit.backends.cpu.plans import test_node_facts as t\n"
        "from unit.backends.cpu.compiled_plans import plan_of\n"
        "print(plan_of(Core(), t.model(), {'x': t.X}).id)\n"
    )
    tests = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tests), "PYTHONHASHSEED": "1"},
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=170,
        check=True,
    )
    assert done.stdout.strip() == here
    assert len(here) == 12
    assert set(here) <= set("0123456789abcdef")


def test_an_id_tells_shapes_attributes_and_types_apart_and_not_weights(core: Core) -> None:
    plan = plan_of(core, model(), {"x": X})
    same = plan_of(core, model(weights=WEIGHTS * 2), {"x": X})
    unfused = plan_of(core, model(), {"x": X}, passes=())
    conv = node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1], strides=[2, 2])
    strided = plan_of(core, model([conv, *NODES[1:]]), {"x": X})
    held = plan_of(core, model(), {"x": X}, float_dtype=DType.BFLOAT16)
    again = plan_of(core, model(), {"x": X})
    assert plan.id == same.id == again.id
    assert len({plan.id, unfused.id, strided.id, held.id}) == 4


def test_an_id_tells_shapes_and_contents_of_a_plan_apart() -> None:
    ids = SubgraphId(Graph("g"), DType.FLOAT32, ["fusion"])
    three, four = np.array([3]), np.array([4])
    found = [
        str(ids.of({"x": (2, 3)}, {})),
        str(ids.of({"x": (3, 2)}, {})),
        str(ids.of({"x": (2, 3), "s": (1,)}, {"s": three})),
        str(ids.of({"x": (2, 3), "s": (1,)}, {"s": four})),
    ]
    assert len(set(found)) == 4
    assert found[2] == str(ids.of({"s": (1,), "x": (2, 3)}, {"s": three}))


def test_a_plan_shows_its_id(core: Core) -> None:
    plan = plan_of(core, model(), {"x": X})
    assert repr(plan).startswith(f"<Plan {plan.id} of 'g': {len(plan.steps)} steps, arena of ")


def test_facts_name_implementation_layout_and_precision(core: Core) -> None:
    facts = node_facts(plan_of(core, model(), {"x": X}, passes=()))
    assert list(facts) == ["conv", "act", "flatten", "prob"]
    assert "ref" not in facts["conv"].implementation
    assert facts["act"].implementation
    assert facts["prob"].layout == "ab"
    assert {fact.precision for fact in facts.values()} == {"float32"}


def test_a_node_without_a_step_is_a_view(core: Core) -> None:
    nodes = [
        node("Softmax", ["x"], ["a"], "a"),
        node("Transpose", ["a"], ["b"], "turn", perm=[0, 2, 3, 1]),
        node("Softmax", ["b"], ["y"], "z"),
    ]
    facts = node_facts(plan_of(core, model_of(nodes, {"x": X}), {"x": X}, passes=()))
    assert facts["turn"].implementation == "view"
    assert facts["turn"].layout == "adbc"


def test_the_graph_shows_them_as_metadata_of_fused_nodes(core: Core) -> None:
    plan = plan_of(core, model(), {"x": X})
    graph = described_graph(plan)
    check_graph(graph)
    nodes = {item.name: item for item in graph.nodes}
    fused = next(item for item in nodes.values() if "act" in item.fused_from)
    assert set(fused.fused_from) == {"conv", "act"}
    for item in nodes.values():
        assert item.metadata["subgraph_id"] == plan.id
        assert set(item.metadata) == {"implementation", "layout", "precision", "subgraph_id"}
    assert all(not item.metadata for item in plan.graph.nodes)


def test_smaller_types_are_visible_node_by_node(core: Core) -> None:
    plan = plan_of(core, model(), {"x": X}, float_dtype=DType.BFLOAT16, passes=())
    facts = node_facts(plan)
    assert facts["conv"].precision == "bfloat16"
    assert plan.outputs[0].dtype is DType.FLOAT32


def test_times_belong_to_steps_and_carry_the_facts(core: Core) -> None:
    plan = plan_of(core, model(), {"x": X})
    profiles = list(node_times(plan, range(0, 10 * len(plan.steps) + 10, 10)))
    assert len(profiles) == len(plan.steps)
    assert {profile.end_ns - profile.start_ns for profile in profiles} == {10}
    conv = next(profile for profile in profiles if "act" in profile.original_nodes)
    assert conv.name == "conv"
    assert all(profile.implementation and profile.layout for profile in profiles)
