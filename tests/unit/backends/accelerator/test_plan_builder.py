"""What kernels ask of the builder: places of values, launches, and lifetimes in the arena."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.launching.reach import whole
from aioinfer.backends.accelerator.operand import Buffer, Operand
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.backends.accelerator.precision import Precision
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.errors import GraphError, NotSupportedError, UnsupportedOpError
from aioinfer.runtime.graph import DType, Model, Node
from unit.backends.accelerator.fake_driver import FACTS
from unit.backends.accelerator.opened import Opened, typed

SOURCE = KernelSource.of("any", "__kernel void $name() {}")
LINE = """g (float[100] x) => (float[100] y) {
    a = Relu(x)
    b = Relu(a)
    c = Relu(b)
    y = Relu(c)
}"""


def lower(node: Node, builder: PlanBuilder) -> None:
    """Lower a Reshape or an Identity as a view, anything else as one launch."""
    operands = [builder.operand(value) for value in node.inputs if value is not None]
    (result,) = node.outputs
    if node.op_type in ("Reshape", "Identity"):
        builder.define(result, operands[0].viewed(builder.shape(result)))
        return
    made = builder.result(result)
    reaches = [whole(item) for item in (*operands, made)]
    builder.launch(SOURCE, [*operands, made, made.count], (made.count,), (64,), reaches)


def build(opened: Opened, text: str, **options: DType) -> Plan:
    return opened.builder(typed(text), **options).build(lower)


def places(plan: Plan) -> list[tuple[int, int]]:
    """Give offset and size of what each launch writes."""
    written = [launch.operands[-1].buffer for launch in plan.launches]
    return [(plan.offsets[buffer], buffer.size_bytes) for buffer in written]


def test_nodes_are_launched_in_order_with_their_names(opened: Opened) -> None:
    plan = build(opened, LINE)
    assert [launch.origin.op for launch in plan.launches] == ["Relu"] * 4
    assert [launch.origin.name for launch in plan.launches] == [
        node.name for node in plan.graph.nodes
    ]
    for before, after in itertools.pairwise(plan.launches):
        assert before.operands[-1] == after.operands[0]


def test_what_is_not_read_any_more_leaves_its_place(opened: Opened) -> None:
    plan = build(opened, LINE)
    assert plan.arena_bytes == 2 * 448  # 400 bytes, aligned: a result beside what it is made of
    assert all(offset % FACTS.align_bytes == 0 for offset, _ in places(plan))


def test_inputs_and_outputs_live_from_upload_to_download(opened: Opened) -> None:
    text = """g (float[100] x, float[100] z) => (float[100] y, float[100] a) {
        a = Relu(x)
        b = Relu(a)
        c = Relu(b)
        y = Add(c, z)
    }"""
    plan = build(opened, text)
    kept = {operand.buffer for operand in (plan.inputs[1], *plan.outputs)}
    spans = sorted((plan.offsets[buffer], buffer.size_bytes) for buffer in kept)
    for (start, size), (other, _) in itertools.pairwise(spans):
        assert start + size <= other
    z = plan.offsets[plan.inputs[1].buffer]
    assert all(abs(offset - z) >= size for offset, size in places(plan)[:3])


def test_a_view_keeps_the_memory_that_it_shows(opened: Opened) -> None:
    text = """g (float[4,25] x) => (float[100] v, float[4,25] y) <int64[1] s = {100}> {
        a = Relu(x)
        v = Reshape(a, s)
        b = Relu(a)
        y = Relu(b)
    }"""
    plan = build(opened, text)
    view, result = plan.outputs
    assert view.shape == (100,)
    assert view.buffer is plan.launches[0].operands[-1].buffer
    first = places(plan)[0]
    assert all(abs(offset - first[0]) >= first[1] for offset, _ in places(plan)[1:])
    assert result.shape == (4, 25)


def test_an_input_may_be_an_output(opened: Opened) -> None:
    plan = build(opened, "g (float[4] x) => (float[4] y) { y = Identity(x) }")
    assert plan.launches == ()
    assert plan.outputs[0].buffer is plan.inputs[0].buffer
    assert plan.arena_bytes == FACTS.align_bytes


def test_texts_are_refused_though_no_node_reads_them(opened: Opened) -> None:
    with pytest.raises(NotSupportedError, match="holds no texts, and 's' has them"):
        build(opened, "g (float[2] x, string[2] s) => (float[2] y) { y = Relu(x) }")


def test_constants_are_named_once_and_lie_outside_of_the_arena(opened: Opened) -> None:
    text = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
        a = Add(x, w)
        y = Mul(a, w)
    }"""
    plan = build(opened, text)
    first, second = (launch.operands[1].buffer for launch in plan.launches)
    assert plan.constants == (first,)
    assert first is second
    assert first not in plan.offsets
    assert build(opened, text).constants != plan.constants  # arrays of another model


def test_a_number_is_an_argument_and_not_a_constant(opened: Opened) -> None:
    given = []

    def lower_scalar(node: Node, builder: PlanBuilder) -> None:
        for value in node.inputs:
            assert value is not None
            given.append(builder.scalar_or_operand(value))
        builder.result(node.outputs[0])

    text = "g (float[4] x) => (float[4] y) <float[1,1] w = {2.5}> { y = Add(x, w) }"
    plan = opened.builder(typed(text)).build(lower_scalar)
    assert isinstance(given[0], Operand)
    assert given[1] == 2.5
    assert plan.constants == ()


def test_groups_are_whole_and_empty_grids_are_not_launched(opened: Opened) -> None:
    (launch,) = build(opened, "g (float[65] x) => (float[65] y) { y = Relu(x) }").launches
    assert (launch.global_size, launch.local_size) == ((128,), (64,))
    plan = build(opened, "g (float[3,0] x) => (float[3,0] y) { y = Relu(x) }")
    assert plan.launches == ()
    assert plan.outputs[0].shape == (3, 0)


def test_half_floats_are_cast_at_the_edges_alone(opened: Opened) -> None:
    text = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
        a = Relu(x)
        y = Add(a, w)
    }"""
    plan = build(opened, text, precision=Precision(DType.FLOAT16))
    types = [[operand.dtype for operand in launch.operands] for launch in plan.launches]
    full, half = DType.FLOAT32, DType.FLOAT16
    assert [sorted(set(row), key=str) for row in types[1:3]] == [[half], [half]]
    assert set(types[0]) == set(types[3]) == {full, half}
    assert (plan.inputs[0].dtype, plan.outputs[0].dtype) == (full, full)
    assert plan.constants[0].size_bytes == 8


def test_more_elements_than_an_int_counts_are_refused_with_the_node(opened: Opened) -> None:
    text = f"g (float[1] x) => (float[{2**31}] y) <int64[1] s = {{{2**31}}}> {{ y = Expand(x, s) }}"
    with pytest.raises(UnsupportedOpError, match=r"2147483648 elements is more than") as caught:
        build(opened, text)
    assert "Expand" in str(caught.value)


X = Operand(Buffer("arena", 16), (4,), DType.FLOAT32)


def without_types(model: Model) -> Model:
    for node in model.graph.nodes:
        node.outputs[0].type = None
    return model


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda builder, value: builder.shape(value), "the shape of 'y' depends on data"),
        (lambda builder, value: builder.dtype(value), "the type of 'y' is unknown"),
        (lambda builder, value: builder.define(value, X), "the shape of 'y' depends on data"),
    ],
)
def test_what_is_not_known_names_the_node_and_a_way_out(
    ask: Callable[[PlanBuilder, object], object], words: str, opened: Opened
) -> None:
    model = without_types(typed("g (float[4] x) => (float[4] y) { y = Relu(x) }"))

    def lower_asking(node: Node, builder: PlanBuilder) -> None:
        ask(builder, node.outputs[0])

    with pytest.raises((GraphError, UnsupportedOpError), match=rf"Relu \(node '\S+'\).*: {words}"):
        opened.builder(model).build(lower_asking)


def test_what_a_kernel_makes_of_constants_is_shared_by_plans(opened: Opened) -> None:
    model = typed("g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
    calls = []

    def lower_derived(node: Node, builder: PlanBuilder) -> None:
        weights = builder.constant(node.inputs[1])
        assert weights is not None

        def compute() -> np.ndarray:
            calls.append(1)
            return weights[::-1]

        turned = builder.derived("turned", [weights], DType.FLOAT32, compute, (2, 2))
        assert turned.shape == (2, 2)
        given = [turned, builder.result(node.outputs[0])]
        builder.launch(SOURCE, given, (4,), (4,), [whole(item) for item in given])

    plans = [opened.builder(model).build(lower_derived) for _ in range(2)]
    assert plans[0].constants == plans[1].constants
    assert len(calls) == 1


def test_a_librarys_operation_is_noted_in_the_order_of_launches(opened: Opened) -> None:
    """Its workspace lives from one launch to the next, and nothing else lies there meanwhile."""
    operation = LibraryOperation.of("cudnn", "conv", n=100)
    workspaces = []

    def call(node: Node, builder: PlanBuilder) -> None:
        (source,) = (builder.operand(value) for value in node.inputs if value is not None)
        workspace = builder.temporary((1000,), DType.UINT8)
        workspaces.append(workspace.buffer)
        builder.call(operation, [source, builder.result(node.outputs[0]), workspace])

    plan = opened.builder(typed(LINE)).build(call)
    assert [launch.origin.op for launch in plan.launches] == ["Relu"] * 4
    assert {launch.source for launch in plan.launches} == {operation}
    assert {(launch.global_size, launch.local_size) for launch in plan.launches} == {((), ())}
    for launch, workspace in zip(plan.launches, workspaces, strict=True):
        spans = sorted(
            (plan.offsets[item.buffer], plan.offsets[item.buffer] + item.size_bytes)
            for item in launch.operands
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert workspace in plan.offsets
    assert plan.arena_bytes < 2 * 1024 + 3 * 400


def test_libraries_of_the_device_are_known_while_lowering(opened: Opened) -> None:
    facts = replace(FACTS, libraries=frozenset({"cudnn"}))
    model = typed(LINE)
    known: dict[str, list[bool]] = {}

    def note(node: Node, builder: PlanBuilder) -> None:
        known[node.name] = [builder.has_library(name) for name in ("cudnn", "cublas")]
        builder.result(node.outputs[0])

    first, *others = (node.name for node in model.graph.nodes)
    refused = {("cudnn", first)}
    options = {"device": "FAKE.0", "facts": facts, "refused": refused}
    PlanBuilder(model, opened.weights, **options).build(note)
    assert known == {first: [False, False], **{name: [True, False] for name in others}}


PART = "g (float[4,16] x) => (float[4,16] y) { a = Relu(x) b = Relu(a) y = Relu(b) }"


def lower_part(first: int) -> Callable[[Node, PlanBuilder], None]:
    """Lower all nodes to launches, which read their input from element ``first`` on."""

    def lower_from(node: Node, builder: PlanBuilder) -> None:
        source, made = node.inputs[0], builder.result(node.outputs[0])
        assert source is not None
        operand = builder.operand(source)
        part = builder.part(operand, first)
        assert part is not None
        builder.launch(SOURCE, [part, made], (64,), (64,), [whole(part), whole(made)])

    return lower_from


def test_a_part_is_the_rest_of_its_operand_as_one_row(opened: Opened) -> None:
    plan = opened.builder(typed(PART)).build(lower_part(32))
    before, after = (launch.operands for launch in plan.launches[:2])
    whole, part = before[1], after[0]
    assert part == replace(whole, shape=(32,), offset_bytes=128)
    assert part.viewed((2, 16)).offset_bytes == 128


def test_parts_change_nothing_of_the_memory_plan(opened: Opened) -> None:
    plans = [opened.builder(typed(PART)).build(lower_part(first)) for first in (0, 16)]
    assert places(plans[0]) == places(plans[1])
    assert plans[0].arena_bytes == plans[1].arena_bytes == 2 * 256


def test_a_part_of_a_part_begins_behind_it(opened: Opened) -> None:
    builder = opened.builder(typed(PART))
    part = builder.part(builder.temporary((64,), DType.FLOAT16), 32)
    assert part is not None
    again = builder.part(part, 16)
    assert again is None
    empty = builder.temporary((0, 4), DType.FLOAT32)
    assert builder.part(empty, 0) is None
    inner = builder.part(builder.temporary((64,), DType.FLOAT32), 32)
    assert inner is not None
    deeper = builder.part(inner, 16)
    assert deeper is not None
    assert (deeper.shape, deeper.offset_bytes) == ((16,), 192)


@pytest.mark.parametrize("first", [1, 15, 17, -16, 64])
def test_there_is_no_part_where_the_device_has_no_address(first: int, opened: Opened) -> None:
    builder = opened.builder(typed(PART))
    assert builder.part(builder.temporary((4, 16), DType.FLOAT32), first) is None


@pytest.mark.parametrize("is_library", [False, True])
def test_an_argument_without_an_address_is_refused(is_library: bool, opened: Opened) -> None:
    operation = LibraryOperation.of("cudnn", "any")

    def lower_wrongly(node: Node, builder: PlanBuilder) -> None:
        made = replace(builder.result(node.outputs[0]), offset_bytes=4)
        if is_library:
            builder.call(operation, [made])
        else:
            builder.launch(SOURCE, [made], (64,), (64,), [whole(made)])

    with pytest.raises(GraphError, match=r"Relu .*begins 4 bytes .* every 64 bytes"):
        opened.builder(typed(PART)).build(lower_wrongly)
