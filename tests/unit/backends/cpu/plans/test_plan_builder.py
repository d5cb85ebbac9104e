"""Placing values: views, results in place, outputs of all kinds, and memory that never overlaps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.operand_layout import Layout, Operand
from aioinfer.backends.cpu.plans.packed_weights import WeightStore
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.plans.steps import NativeStep
from aioinfer.errors import GraphError, NotSupportedError, UnsupportedOpError
from aioinfer.runtime.graph import DType, Node, Value
from unit.backends.cpu.comparing import model_of, run
from unit.backends.cpu.compiled_plans import BoundPlan, plan_of

node = helper.make_node
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
SOFTMAX = node("Softmax", ["x"], ["a"], "a")
"""Makes an arena value that no view rule can see through; inputs are never overwritten."""


def build(
    core: Core, nodes: list[Any], lower: Callable[[Node, PlanBuilder], None], **options: Any
) -> Plan:
    """Build a plan with a lowering of the test's own."""
    model = core.read_model(model_of(nodes, {"x": X}, **options)).copy()
    return PlanBuilder(model, open_engine(), WeightStore()).build(lower)


class Recorder:
    """Lowers every node to a fresh value, or to a view for Reshape, and notes what it may reuse."""

    def __init__(self) -> None:
        self.may: dict[str, dict[str, bool]] = {}
        self.operands: dict[str, Operand] = {}

    def __call__(self, node: Node, builder: PlanBuilder) -> None:
        used = [value for value in node.inputs if value is not None and value.constant is None]
        self.may[node.name] = {
            value.name: builder.can_overwrite(builder.operand(value)) for value in used
        }
        result, first = node.outputs[0], builder.operand(used[0])
        if node.op_type == "Reshape":
            view = Layout.plain(builder.shape(result), first.dtype)
            self.operands[result.name] = builder.define(result, first.viewed(view))
            return
        made = builder.result(result, Layout.plain(builder.shape(result), first.dtype))
        self.operands[result.name] = made
        builder.numpy(lambda source, target: None, (first, made))


def recorded(core: Core, nodes: list[Any], **options: Any) -> dict[str, dict[str, bool]]:
    recorder = Recorder()
    build(core, nodes, recorder, **options)
    return recorder.may


FLAT = {"flat": np.array([24])}


def test_a_value_may_be_overwritten_by_its_last_reader(core: Core) -> None:
    nodes = [
        node("Exp", ["x"], ["a"], "a"),
        node("Exp", ["a"], ["b"], "b"),
        node("Sub", ["a", "b"], ["c"], "c"),
        node("Exp", ["c"], ["y"], "y"),
    ]
    assert recorded(core, nodes) == {
        "a": {"x": False},  # the caller's
        "b": {"a": False},  # c reads it later
        "c": {"a": True, "b": True},
        "y": {"c": True},
    }


def test_a_value_that_is_read_twice_by_its_last_reader_may_be_overwritten(core: Core) -> None:
    nodes = [node("Exp", ["x"], ["a"], "a"), node("Mul", ["a", "a"], ["y"], "y")]
    assert recorded(core, nodes)["y"] == {"a": True}


def test_a_value_with_a_view_that_is_read_later_may_not(core: Core) -> None:
    nodes = [
        node("Exp", ["x"], ["a"], "a"),
        node("Reshape", ["a", "flat"], ["v"], "v"),
        node("Exp", ["a"], ["b"], "b"),
        node("Exp", ["v"], ["c"], "c"),
        node("Reshape", ["b", "flat"], ["d"], "d"),
        node("Sub", ["c", "d"], ["y"], "y"),
    ]
    may = recorded(core, nodes, constants=FLAT)
    assert may["b"] == {"a": False}
    assert may["c"] == {"v": True}
    assert may["y"] == {"c": True, "d": True}


def test_a_value_whose_view_is_an_output_may_not(core: Core) -> None:
    nodes = [
        node("Exp", ["x"], ["a"], "a"),
        node("Reshape", ["a", "flat"], ["z"], "z"),
        node("Exp", ["a"], ["b"], "b"),
        node("Exp", ["b"], ["y"], "y"),
    ]
    may = recorded(core, nodes, constants=FLAT, outputs=["y", "z"])
    assert may["b"] == {"a": False}
    assert may["y"] == {"b": True}


def test_an_output_that_is_read_on_may_not(core: Core) -> None:
    nodes = [node("Exp", ["x"], ["y"], "y"), node("Exp", ["y"], ["z"], "z")]
    assert recorded(core, nodes, outputs=["y", "z"])["z"] == {"y": False}


def test_two_values_in_one_memory_may_not_be_overwritten_by_who_reads_both(core: Core) -> None:
    nodes = [
        node("Exp", ["x"], ["a"], "a"),
        node("Reshape", ["a", "other"], ["v"], "v"),
        node("MatMul", ["a", "v"], ["y"], "y"),
    ]
    may = recorded(core, nodes, constants={"other": np.array([6, 4])})
    assert may["y"] == {"a": False, "v": False}


def test_a_result_takes_over_only_memory_that_is_large_enough(core: Core) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        (source,) = node.inputs
        assert source is not None
        operand = builder.operand(source)
        dtype = DType.INT8 if node.name == "small" else DType.FLOAT32
        layout = Layout.plain(builder.shape(node.outputs[0]), dtype)
        made[node.name] = builder.result(node.outputs[0], layout, over=operand)
        builder.native("fill", (made[node.name],), [dtype.item_bytes, layout.count, 0])

    made: dict[str, Operand] = {}
    nodes = [node("Exp", ["x" if i == 0 else names[i - 1]], [name], name)
             for names in [["first", "over", "small", "large", "y"]]
             for i, name in enumerate(names)]  # fmt: skip
    build(core, nodes, lower)
    assert made["over"].buffer is made["first"].buffer
    assert made["small"].buffer is made["first"].buffer
    assert made["large"].buffer is made["first"].buffer  # the buffer is as large as ever
    assert made["y"].buffer.kind == "output"


def test_memory_of_values_that_live_together_does_not_overlap(core: Core) -> None:
    names = ["a", "b", "c", "d", "e"]
    chain = zip(["x", *names], names, strict=False)
    nodes = [node("Exp", [source], [name], name) for source, name in chain]
    nodes += [node("Sub", ["a", "e"], ["f"], "f"), node("Sub", ["f", "c"], ["y"], "y")]
    plan = build(core, nodes, Recorder())
    spans: dict[Any, list[int]] = {}
    for index, step in enumerate(plan.steps):
        for operand in step.operands:
            spans.setdefault(operand.buffer, []).append(index)
    arena = [buffer for buffer in spans if buffer.kind == "arena"]
    assert len(arena) > 3
    for one in arena:
        assert plan.offsets[one] % 64 == 0
        assert plan.offsets[one] + one.size_bytes <= plan.arena_bytes
        for other in arena:
            if one is other or max(spans[one]) < min(spans[other]):
                continue
            if max(spans[other]) < min(spans[one]):
                continue
            start, end = plan.offsets[one], plan.offsets[one] + one.size_bytes
            low = plan.offsets[other]
            assert low >= end or low + other.size_bytes <= start


DEEP = [
    node("Softmax", ["x"], ["a"], "a"),
    node("Reshape", ["a", "flat"], ["v"], "v"),
    node("Transpose", ["a"], ["t"], "t"),
    node("Softmax", ["a"], ["b"], "b", axis=0),
    node("Split", ["b"], ["l", "r"], "s", axis=1, num_outputs=2),
    node("Sub", ["l", "r"], ["d"], "d"),
    node("MatMul", ["t", "d"], ["m"], "m"),
    node("Softmax", ["m"], ["n"], "n"),
    node("Concat", ["n", "l"], ["y"], "y", axis=0),
    node("Softmax", ["v"], ["z"], "z"),
]


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_read_that_the_run_has_not_written(core: Core, threads: int) -> None:
    inputs = {"x": X}
    model = model_of(DEEP, inputs, ["y", "z", "t"], FLAT)
    bound = BoundPlan(plan_of(core, model, inputs, threads=threads))
    bound.poison(0)
    first = bound.run(inputs)
    for byte in (255, 127):  # NaN, and the largest numbers
        bound.poison(byte)
        for one, other in zip(first, bound.run(inputs), strict=True):
            np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))
    wanted = run(core, model, "REFERENCE", inputs)
    for name, array in zip(["y", "z", "t"], first, strict=True):
        np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-5)


OUTPUTS: dict[str, tuple[list[Any], list[str]]] = {
    "an input": ([node("Exp", ["x"], ["y"])], ["x", "y"]),
    "inputs under other names": (
        [node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["z"])],
        ["y", "z"],
    ),
    "the same value twice": ([node("Exp", ["x"], ["y"])], ["y", "y"]),
    "a copy of an output": (
        [node("Exp", ["x"], ["y"]), node("Identity", ["y"], ["z"])],
        ["y", "z"],
    ),
    "a constant": (
        [node("Exp", ["x"], ["y"]), node("Identity", ["flat"], ["z"])],
        ["y", "z"],
    ),
    "a view of an input": ([node("Reshape", ["x", "flat"], ["y"])], ["y"]),
    "a transposed view of an input": ([node("Transpose", ["x"], ["y"])], ["y"]),
    "a view of an output": (
        [node("Exp", ["x"], ["y"]), node("Reshape", ["y", "flat"], ["z"])],
        ["y", "z"],
    ),
    "a view of what is overwritten": (
        [
            SOFTMAX,
            node("Reshape", ["a", "flat"], ["y"]),
            node("Softmax", ["a"], ["b"], axis=0),
            node("Softmax", ["b"], ["z"]),
        ],
        ["y", "z"],
    ),
    "an output that is read on": (
        [node("Softmax", ["x"], ["y"]), node("Softmax", ["y"], ["b"], axis=0),
         node("Softmax", ["b"], ["z"])],
        ["y", "z"],
    ),
    "a sum with its own transposed view": (
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Transpose", ["a"], ["t"]),
            node("Add", ["a", "t"], ["b"]),
            node("Softmax", ["b"], ["y"]),
        ],
        ["y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTPUTS)
def test_outputs_of_all_kinds(core: Core, case: str) -> None:
    nodes, outputs = OUTPUTS[case]
    constants = {**FLAT, "w": X.T.copy()}
    used = {name for item in nodes for name in item.input}
    constants = {name: array for name, array in constants.items() if name in used}
    model = model_of(nodes, {"x": X}, outputs, constants)
    wanted = run(core, model, "REFERENCE", {"x": X})
    got = run(core, model, "CPU", {"x": X})
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-5 * np.abs(array).max())


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (1, 1, 1)])
def test_scalars_and_empty_tensors(core: Core, shape: tuple[int, ...]) -> None:
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Identity", ["a"], ["b"]),
        node("Neg", ["b"], ["y"]),
    ]
    x = np.full(shape, 0.5, np.float32)
    got = run(core, model_of(nodes, {"x": x}), "CPU", {"x": x})["y"]
    assert got.shape == shape
    np.testing.assert_allclose(got, -np.exp(x), rtol=1e-5)


def test_a_step_knows_its_node_and_deliveries_have_none(core: Core) -> None:
    plan = plan_of(core, model_of([node("Transpose", ["x"], ["y"], "turn")], {"x": X}), {"x": X})
    (step,) = plan.steps
    assert isinstance(step, NativeStep)
    assert step.implementation == "native:copy"
    assert step.origin.is_delivery
    assert step.origin.op == "Output"


def test_refusals_of_onednn_name_the_node(core: Core) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        engine = builder.engine
        engine.desc((1,) * 13, DType.FLOAT32)

    with pytest.raises(UnsupportedOpError, match="descriptor of 13 axes failed") as refused:
        build(core, [node("Exp", ["x"], ["y"], "here")], lower)
    assert "here" in str(refused.value)


def test_a_value_before_its_time_is_an_error_of_the_graph(core: Core) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        builder.operand(node.outputs[0])

    with pytest.raises(GraphError, match="'y' is used before it is made"):
        build(core, [node("Exp", ["x"], ["y"])], lower)


def test_an_output_that_no_step_writes_is_an_error_of_the_graph(core: Core) -> None:
    def forget(item: Node, builder: PlanBuilder) -> None:
        result = item.outputs[0]
        builder.result(result, Layout.plain(builder.shape(result), builder.dtype(result)))

    with pytest.raises(GraphError, match="no step of the plan writes the output 'y'"):
        build(core, [node("Relu", ["x"], ["y"])], lower=forget)


def test_what_is_not_known_is_said(core: Core) -> None:
    model = core.read_model(model_of([node("Exp", ["x"], ["y"])], {"x": X}, dynamic=True))
    builder = PlanBuilder(model.copy(), open_engine(), WeightStore())
    with pytest.raises(NotSupportedError, match="shape of 'x' depends on data"):
        builder.shape(model.graph.inputs[0])
    with pytest.raises(GraphError, match="type of 'nobody' is unknown"):
        builder.dtype(Value("nobody"))


def test_what_is_not_known_is_said_of_a_node(core: Core) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        value = Value("nobody")
        builder.dtype(value) if node.name == "types" else builder.shape(value)

    with pytest.raises(GraphError, match=r"Exp \(node 'types'\) .* 'nobody' .* declare it"):
        build(core, [node("Exp", ["x"], ["y"], "types")], lower)
    with pytest.raises(UnsupportedOpError, match=r"Exp \(node 'shapes'\): .* 'nobody' .*HETERO"):
        build(core, [node("Exp", ["x"], ["y"], "shapes")], lower)


MANY = (2, 1, 3) + (1, 2) * 5
"""More axes than oneDNN's descriptors have."""


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Neg", ["t"], ["u"]), node("CumSum", ["u", "axis"], ["y"])], {"axis": np.array(0)}),
        ([node("Neg", ["t"], ["u"]), node("Concat", ["u", "t"], ["y"], axis=0)], {}),
        ([node("LayerNormalization", ["t", "scale"], ["y"])], {"scale": np.ones(2, np.float32)}),
        ([node("Softmax", ["t"], ["u"]), node("Transpose", ["u"], ["y"])], {}),
    ],
)
def test_more_axes_than_onednn_has_in_a_smaller_type(
    core: Core, nodes: list[Any], constants: dict[str, np.ndarray]
) -> None:
    x = np.random.default_rng(1).standard_normal(MANY).astype(np.float32)
    model = model_of([node("Transpose", ["x"], ["t"]), *nodes], {"x": x}, ["y"], constants)
    assert all(support.supported for support in core.query_network(model, "CPU").values())
    wanted = run(core, model, "REFERENCE", {"x": x})["y"]
    plan = plan_of(core, model, {"x": x}, float_dtype=DType.BFLOAT16)
    (got,) = BoundPlan(plan).run({"x": x})
    np.testing.assert_allclose(got, wanted, rtol=0, atol=0.05 * np.abs(wanted).max())


def test_other_types_of_many_axes_are_not_converted(core: Core) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        source, target = (
            builder.temporary(Layout.plain(MANY, dtype)) for dtype in (DType.INT64, DType.FLOAT32)
        )
        builder.move(source, target)

    with pytest.raises(UnsupportedOpError, match="descriptor of int64"):
        build(core, [node("Exp", ["x"], ["y"])], lower)


def test_a_value_is_reordered_once_for_all_who_want_the_same(core: Core) -> None:
    seen: list[Operand] = []

    def lower(node: Node, builder: PlanBuilder) -> None:
        source = node.inputs[0]
        assert source is not None
        wanted = builder.engine.desc((4, 6), DType.FLOAT32, (1, 4))
        seen.append(builder.reordered(source, wanted))
        layout = Layout.plain(builder.shape(node.outputs[0]), DType.FLOAT32)
        made = builder.result(node.outputs[0], layout)
        builder.copy(seen[-1], made)

    nodes = [node("Exp", ["x"], ["y"], "one"), node("Neg", ["x"], ["z"], "two")]
    plan = build(core, nodes, lower, outputs=["y", "z"])
    assert seen[0] is seen[1]
    assert [step.origin.name for step in plan.steps] == ["one", "one", "two"]


def test_constants_may_lie_anywhere(core: Core) -> None:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(X.tobytes(), np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(X.shape)
    builder = PlanBuilder(
        core.read_model(model_of([SOFTMAX], {"x": X}, ["a"])).copy(), open_engine(), WeightStore()
    )
    for array in (unaligned, np.asfortranarray(X), X[::-1]):
        placed = builder.constant_operand(array).buffer.array
        assert placed is not None
        assert placed.flags.c_contiguous
        assert placed.flags.aligned
        np.testing.assert_array_equal(placed, array)


def test_a_buffer_that_many_values_hold_in_turn_knows_the_living_ones_only(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    ask = PlanBuilder.can_overwrite

    def watched(self: PlanBuilder, operand: Operand) -> bool:
        counts.append(len(self._holders.get(operand.buffer, ())))
        return ask(self, operand)

    monkeypatch.setattr(PlanBuilder, "can_overwrite", watched)
    names = ["x", *(f"v{i}" for i in range(200)), "y"]
    nodes = [node("Softmax", [given], [made], made) for given, made in itertools.pairwise(names)]
    plan_of(core, model_of(nodes, {"x": X}), {"x": X})
    assert counts
    assert max(counts) <= 2
