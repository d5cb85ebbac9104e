"""Random graphs of views, products and elementwise operators: CPU gives what REFERENCE gives.

What may go wrong here is memory: a view of what was overwritten, an output that lies in the arena,
a sum that writes over what is read later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from exhaustive import drawn
from unit.backends.cpu.comparing import assert_same_as_reference, model_of
from unit.backends.cpu.compiled_plans import BoundPlan, plan_of

UNARY = ["Relu", "Tanh", "Sigmoid", "Neg", "Identity", "Abs"]
BINARY = ["Add", "Sub", "Mul", "Max"]
ROWS, COLUMNS = 4, 6

Shape = tuple[int, ...]


class Graph:
    """A graph that grows node by node; every value is a matrix."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.shapes: dict[str, Shape] = {"x": (ROWS, COLUMNS)}
        self.constants: dict[str, np.ndarray] = {}

    def add(self, op: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> None:
        names = [f"v{len(self.shapes) + index}" for index in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.shapes.update(zip(names, shapes, strict=True))

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name


def grow(graph: Graph, draw: st.DrawFn) -> None:
    """Add one node on values that are there."""
    source = draw(st.sampled_from(list(graph.shapes)))
    shape = graph.shapes[source]
    kind = draw(
        st.sampled_from(
            ["unary", "binary", "scale", "softmax", "transpose", "reshape", "split", "slice",
             "concat", "matmul", "sum"]
        )
    )  # fmt: skip
    if kind == "unary":
        graph.add(draw(st.sampled_from(UNARY)), [source], shape)
    elif kind == "binary":
        alike = [name for name, other in graph.shapes.items() if other == shape]
        other = draw(st.sampled_from(alike))
        graph.add(draw(st.sampled_from(BINARY)), [source, other], shape)
    elif kind == "scale":
        factor = graph.constant(np.full((1, shape[1]), 0.5, np.float32))
        graph.add(draw(st.sampled_from(BINARY)), [source, factor], shape)
    elif kind == "softmax":
        graph.add("Softmax", [source], shape, axis=draw(st.integers(0, 1)))
    elif kind == "transpose":
        graph.add("Transpose", [source], shape[::-1], perm=[1, 0])
    elif kind == "reshape":
        wanted = (shape[1], shape[0])
        graph.add("Reshape", [source, graph.constant(np.array(wanted))], wanted)
    elif kind == "split" and shape[0] % 2 == 0:
        half = (shape[0] // 2, shape[1])
        graph.add("Split", [source], half, half, axis=0, num_outputs=2)
    elif kind == "slice":
        bounds = [graph.constant(np.array([number])) for number in (0, -1 if shape[1] > 1 else 1)]
        axes = graph.constant(np.array([1]))
        graph.add("Slice", [source, *bounds, axes], (shape[0], max(1, shape[1] - 1)))
    elif kind == "concat" and shape[0] <= 2 * ROWS:
        graph.add("Concat", [source, source], (2 * shape[0], shape[1]), axis=0)
    elif kind == "matmul":
        weights = np.eye(shape[1], dtype=np.float32)[::-1] * 0.5
        graph.add("MatMul", [source, graph.constant(weights.copy())], shape)
    elif kind == "sum":  # a product and what may be summed in place
        alike = [name for name, other in graph.shapes.items() if other == shape]
        weights = np.eye(shape[1], dtype=np.float32) * 0.5
        graph.add("MatMul", [source, graph.constant(weights)], shape)
        graph.add("Add", [list(graph.shapes)[-1], draw(st.sampled_from(alike))], shape)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[str]]:
    graph = Graph()
    for _ in range(draw(st.integers(1, 14))):
        grow(graph, draw)
    made = [name for name in graph.shapes if name != "x"]
    if not made:
        graph.add("Relu", ["x"], graph.shapes["x"])
        made = [name for name in graph.shapes if name != "x"]
    others = draw(st.lists(st.sampled_from(made), max_size=3, unique=True))
    return graph, [*dict.fromkeys([*others, made[-1]])]


@settings(
    max_examples=drawn(60),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=graphs(), threads=st.integers(1, 2))
def test_random_graphs(core: Core, case: tuple[Graph, list[str]], threads: int) -> None:
    graph, outputs = case
    inputs = {"x": np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)}
    model = model_of(graph.nodes, inputs, outputs, graph.constants)
    assert_same_as_reference(core, model, inputs)
    bound = BoundPlan(plan_of(core, model, inputs, threads=threads))
    bound.poison(0)
    first = bound.run(inputs)
    bound.poison(255)
    for one, other in zip(first, bound.run(inputs), strict=True):
        assert one.tobytes() == other.tobytes()
