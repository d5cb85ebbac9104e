"""Random graphs compute the same before and after all passes, and lose track of no node."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.graph import (
    DType,
    Graph,
    Model,
    Node,
    TensorType,
    Value,
    check_graph,
    graph_text,
)
from aioinfer.runtime.passes import (
    Support,
    default_passes,
    map_to_original,
    run_passes,
    specialize_with_report,
)
from exhaustive import drawn
from unit.runtime.passes.small_models import evaluate

FLOATS = TensorType(DType.FLOAT32, ("n", 3))
UNARY = ["Neg", "Abs", "Relu", "Identity", "Dropout", "Cast"]
BINARY = ["Add", "Mul", "Sub", "Max"]
ATTRIBUTES = {"Cast": {"to": 1}}


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Elementwise operators over two inputs and a few constants, with shape arithmetic mixed in."""
    graph = Graph("random", [Value("x0", FLOATS), Value("x1", FLOATS)])
    values = list(graph.inputs)
    for index in range(draw(st.integers(0, 3))):
        content = np.full((1, 3), draw(st.integers(-1, 1)), np.float32)
        kind = TensorType(DType.FLOAT32, (1, 3))
        values.append(graph.add_initializer(Value(f"c{index}", kind, content)))

    def append(op_type: str, inputs: list[Value]) -> Value:
        name = f"n{len(graph)}"
        attributes = ATTRIBUTES.get(op_type)
        node = graph.append(Node(op_type, inputs, [Value(f"v{name}")], attributes, name=name))
        node.affinity = draw(st.sampled_from([None, None, None, "MOCK.0", "MOCK.1"]))
        return node.outputs[0]

    for _ in range(draw(st.integers(1, 14))):
        first = draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["unary", "unary", "binary", "binary", "reshape"]))
        if kind == "unary":
            made = append(draw(st.sampled_from(UNARY)), [first])
        elif kind == "binary":
            second = draw(st.sampled_from(values))
            made = append(draw(st.sampled_from(BINARY)), [first, second])
        else:
            made = append("Reshape", [first, append("Shape", [first])])
        values.append(made)
    made_by_nodes = [value for value in values if value.producer is not None]
    graph.outputs = draw(
        st.lists(st.sampled_from(made_by_nodes), min_size=1, max_size=3, unique=True)
    )
    return Model(graph, {"": 26})


def _inputs() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=(2, 3)).astype(np.float32) for name in ("x0", "x1")}


def _assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def _affinities(model: Model) -> dict[str, str | None]:
    return {name: node.affinity for node in model.graph.nodes for name in node.fused_from}


@settings(max_examples=drawn(150))
@given(models())
def test_passes_change_no_result_and_account_for_every_node(model: Model) -> None:
    names, wanted = [node.name for node in model.graph.nodes], _affinities(model)
    expected = evaluate(model, _inputs())

    report = run_passes(model, default_passes())

    _assert_equal(evaluate(model, _inputs()), expected)
    verdict = {node.name: Support(True) for node in model.graph.nodes}
    answers = map_to_original(names, model.graph, report.removed_names, verdict)
    assert all(answer.supported for answer in answers.values())
    assert all(wanted[name] == device for name, device in _affinities(model).items())
    assert run_passes(model, default_passes()).patch_count == 0


@settings(max_examples=drawn(50))
@given(models())
def test_specialising_changes_no_result(model: Model) -> None:
    before = graph_text(model.graph)
    special, _ = specialize_with_report(model, {"x0": (2, 3)})
    _assert_equal(evaluate(special, _inputs()), evaluate(model, _inputs()))
    assert graph_text(model.graph) == before
    assert special.graph.nodes_of("Shape") == []


@settings(max_examples=drawn(50))
@given(models(), st.integers(0, 10))
def test_a_run_may_stop_after_any_patch(model: Model, count: int) -> None:
    expected = evaluate(model, _inputs())
    run_passes(model, default_passes(), stop_after=count)
    check_graph(model.graph)
    _assert_equal(evaluate(model, _inputs()), expected)


@settings(max_examples=drawn(50))
@given(models())
def test_what_finds_all_in_one_walk_finds_nothing_in_the_next(model: Model) -> None:
    Model.infer_types(model, {})
    for item in default_passes():
        if item.finds_all:
            run_passes(model, [item])
            assert run_passes(model, [item]).patch_count == 0
