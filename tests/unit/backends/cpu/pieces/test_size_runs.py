"""Shape arithmetic is one step, and gives what its nodes give one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.pieces.size_runs import SizeRun, SizeSteps, join_sizes
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import Graph, Node
from aioinfer.runtime.interpretation.control_flow import Run
from onnx_text import parse, parse_proto

MOST = (1 << 63) - 1
CONSTANTS = """
    first = Constant<value_ints = [0]>()
    last = Constant<value_ints = [-1]>()
    empty = Constant<value = int64[0] {}>()
    one = Constant<value_ints = [1]>()
    several = Constant<value_ints = [2, -1, 0]>()
    zero = Constant<value = int64 {0}>()
    back = Constant<value = int64 {-2}>()
    far = Constant<value = int64 {3}>()
    more = Constant<value_ints = [300, 7]>()
"""
GIVEN = "float[A,B,C] x, int64[3] v, int64 s, int64 t, int64[N] long, int64[2,2] square"


def graph_of(nodes: str, outputs: str) -> Graph:
    return parse(f"g ({GIVEN}) => ({outputs}) {{ {CONSTANTS} {nodes} }}").graph


def items_of(graph: Graph) -> list[Node | SizeRun]:
    nodes = [node for node in graph.nodes if not node.outputs[0].is_constant]
    return [item for item in join_sizes(nodes) if isinstance(item, Node | SizeRun)]


def names(graph: Graph) -> list[list[str]]:
    return [
        [node.op_type for node in (item.nodes if isinstance(item, SizeRun) else [item])]
        for item in items_of(graph)
    ]


def steps_of(graph: Graph) -> SizeSteps:
    """Make the steps of a graph that is one run, whose row is the graph's inputs."""
    (run,) = items_of(graph)
    assert isinstance(run, SizeRun)
    return SizeSteps(run, graph.inputs, graph.outputs, {"": 21})


def assert_alike(found: list[Any], wanted: list[Any]) -> None:
    for mine, right in zip(found, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (np.int64, right.shape)
        assert right.dtype == np.int64
        np.testing.assert_array_equal(mine, right)


def row(seed: int) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    numbers = chance.integers(-9, 9, 5)
    lengths = chance.integers(0, 4, 3)
    return [np.zeros(lengths, np.float32), numbers[:3], *map(np.array, numbers[3:]), numbers, None]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("a = Shape(x) y = Gather(a, zero)", "int64 y"),
        ("a = Shape<start = 1>(x) y = Gather(a, back)", "int64 y"),
        ("a = Shape<start = -2, end = -1>(x) y = Gather(a, zero)", "int64 y"),
        ("a = Shape(x) y = Gather<axis = -1>(a, several)", "int64[3] y"),
        (
            "a = Gather(v, zero) b = Unsqueeze(a, first) y = Concat<axis = 0>(b, v, more)",
            "int64[6] y",
        ),
        ("a = Gather(v, back) b = Unsqueeze(a, last) y = Concat<axis = -1>(more, b)", "int64[3] y"),
        ("a = Concat<axis = 0>(v, more) y = ReduceMin<keepdims = 0>(a)", "int64 y"),
        ("a = Concat<axis = 0>(v, more) y = ReduceMax(a)", "int64[1] y"),
        ("a = Concat<axis = 0>(v, more) y = ReduceSum<keepdims = 0>(a, first)", "int64 y"),
        ("a = Shape(x) y = ReduceProd<keepdims = 0>(a)", "int64 y"),
        ("a = Shape<start = 3>(x) y = ReduceProd<keepdims = 0>(a)", "int64 y"),
        ("a = Shape<start = 3>(x) y = ReduceSum(a, last)", "int64[1] y"),
        ("a = Shape<start = 2>(x) b = Squeeze(a) y = Reshape(b, last)", "int64[1] y"),
        ("a = Shape<end = 1>(x) b = Squeeze(a, first) y = Reshape(b, one)", "int64[1] y"),
        ("a = Shape<end = 1>(x) b = Reshape(a, empty) y = Unsqueeze(b, first)", "int64[1] y"),
        ("a = Reshape(v, last) y = Gather(a, zero)", "int64 y"),
        ("a = Add(s, t) b = Mul(a, s) c = Sub(b, t) d = Min(c, s) y = Max(d, a)", "int64 y"),
        (
            "a = Shape(x) b = Gather(a, zero) c = Mul(b, s) z = Add(c, t)",
            "int64[3] a, int64 c, int64 z",
        ),
    ],
)
def test_each_operator_gives_what_numpy_gives(nodes: str, outputs: str) -> None:
    steps = steps_of(graph_of(nodes, outputs))
    for seed in range(20):
        given = row(seed)
        assert_alike(steps._by_numbers(given), steps._one_by_one(given))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "nodes",
    ["a = Mul(s, t) y = Min(a, s)", "a = Add(s, t) y = Sub(a, s)", "a = Sub(s, t) y = Mul(a, s)"],
)
def test_numbers_of_more_than_64_bits_come_round_as_numpy_has_them(nodes: str, sign: int) -> None:
    steps = steps_of(graph_of(nodes, "int64 y"))
    given = [None, None, np.array(sign * MOST), np.array(-sign * (MOST - 3)), None, None]
    for t in (given[3], -given[3], np.array(2)):
        given[3] = t
        with np.errstate(all="ignore"):
            assert_alike(steps(given, Run()), steps._one_by_one(given))


def test_what_does_not_fit_is_left_to_the_node_that_fails() -> None:
    steps = steps_of(graph_of("a = Gather(v, far) y = Unsqueeze(a, first)", "int64[1] y"))
    with pytest.raises(TensorError, match=r"Gather \(node 'Gather_0'\) on \(int64\[3\],"):
        steps(row(0), Run())
    longer = [None, np.arange(4), *row(0)[2:]]
    assert [made.tolist() for made in steps(longer, Run())] == [[3]]
    nothing = steps_of(graph_of("a = Shape<start = 3>(x) y = ReduceMin(a)", "int64[1] y"))
    assert nothing(row(0), Run())[0].tolist() == [MOST]


def test_an_input_that_is_not_as_declared_is_computed_all_the_same() -> None:
    steps = steps_of(graph_of("a = Concat<axis = 0>(v, more) y = ReduceMax(a)", "int64[1] y"))
    for v in (np.arange(500), np.array([1, 2, 3], np.int32)):
        (made,) = steps([None, v, None, None, None, None], Run())
        assert (made.dtype, made.tolist()) == (v.dtype, [max(300, v.max())])


def test_only_neighbours_that_make_short_lists_are_joined() -> None:
    text = """
        a = Shape(x)
        b = Gather(a, zero)
        f = Neg(x)
        c = Unsqueeze(b, first)
        d = Concat<axis = 0>(c, more)
        e = Shape(d)
        k = Gather(long, zero)
        l = Shape(long)
        m = ReduceMax(l)
        n = Gather(square, zero)
        y = Add(m, n)
    """
    graph = graph_of(text, "int64[M] e, int64 k, int64[2] y, float[A,B,C] f")
    assert names(graph) == [
        ["Shape", "Gather"],
        ["Neg"],
        ["Unsqueeze", "Concat"],
        ["Shape"],
        ["Gather"],
        ["Shape", "ReduceMax"],
        ["Gather"],
        ["Add"],
    ]


CHOSEN = """g (float[N] x, float[N,2] pairs) => (float[K] y, float[K,2] z, float[K] w) {
    zero = Constant<value = int64 {0}>()
    first = Constant<value_ints = [0]>()
    last = Constant<value_ints = [-1]>()
    most = Constant<value_ints = [LIMIT]>()
    marks = NonZero(x)
    places = Transpose(marks)
    chosen = GatherND(x, places)
    more = GatherND(pairs, places)
    lengths = Shape(chosen)
    length = Gather(lengths, zero)
    list = Unsqueeze(length, first)
    both = Concat<axis = 0>(most, list)
    least = ReduceMin<keepdims = 0>(both)
    k = Reshape(least, last)
    y, at = TopK(chosen, k)
    z = Gather(more, at)
    count = Shape(y)
    w = ConstantOfShape(count)
}"""


@pytest.mark.parametrize("most", [0, 3, 100])
def test_a_chain_of_a_detector_is_one_step_beside_its_others(most: int) -> None:
    model = parse_proto(CHOSEN.replace("LIMIT", str(most)), 18, ir_version=9).SerializeToString()
    chance = np.random.default_rng(most)
    with aioinfer.Core() as core:
        config = {"PERF_COUNT": True}
        with core.load_network(model, "CPU", config) as ours:
            other = core.load_network(model, "REFERENCE")
            for count, kept in ((5, 1.0), (40, 0.5), (7, 0.0), (0, 0.0), (1, 1.0)):
                x = chance.random(count, np.float32) * (chance.random(count) < kept)
                feeds = {"x": x.astype(np.float32), "pairs": chance.random((count, 2), np.float32)}
                request = ours.create_infer_request()
                found = request.infer_sync(feeds)
                wanted = other.create_infer_request().infer_sync(feeds)
                for name, right in wanted.items():
                    np.testing.assert_array_equal(found[name], right)
            steps = {item.name: item for item in request.profiling()}
            assert steps["Shape_0"].op == "aioinfer.cpu::Sizes"
            assert list(steps["Shape_0"].original_nodes) == [
                "Shape_0",
                "Gather_0",
                "Unsqueeze_0",
                "Concat_0",
                "ReduceMin_0",
                "Reshape_0",
            ]
            assert "14 nodes" in ours.explain()
