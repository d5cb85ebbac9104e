"""What is too large, too deep or plainly damaged is refused early, with the limit and a way out."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model, source
from aioinfer.runtime.onnx_reader.wire import limits
from aioinfer.runtime.onnx_reader.wire.wire_format import text_field


def info(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [1])


def proto_of(nodes: list[onnx.NodeProto], *tensors: onnx.TensorProto) -> onnx.ModelProto:
    inputs = [info("x"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y")], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def relus(count: int) -> onnx.ModelProto:
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return proto_of([helper.make_node("Relu", [names[i]], [names[i + 1]]) for i in range(count)])


def nested(depth: int) -> onnx.ModelProto:
    """If nodes inside each other, each of which is in the body of the one around it."""
    proto = proto_of([])
    graph = proto.graph
    for number in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=[f"o{number}"])
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
        graph.output.append(info(f"i{number}"))
    graph.node.add(op_type="Relu", input=["x"], output=["r"])
    return proto


def repeated(item: bytes, count: int) -> bytes:
    """A model whose graph is one field, again and again."""
    opset = text_field(8, b"\n\0\x10\x15")
    return b"\x08\n" + text_field(7, item * count) + opset


def empty_nodes(count: int) -> bytes:
    return repeated(text_field(1, b""), count)


def events_of_refusing(source: bytes | str, wanted: str) -> int:
    """Count calls and returns of Python's, and of C's, until the model is refused."""
    count = 0

    def note(_frame: object, _event: str, _argument: object) -> None:
        nonlocal count
        count += 1

    before, text = sys.getprofile(), ""
    sys.setprofile(note)
    try:
        read_model(source)
    except ModelError as error:
        text = str(error)
    finally:
        sys.setprofile(before)
    assert wanted in text
    return count


@pytest.mark.parametrize("is_proto", [False, True])
def test_too_many_nodes_are_refused(is_proto: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_NODES", 10)
    proto = relus(11)
    with pytest.raises(ModelError, match=r"over 10 nodes.*split the model"):
        read_model(proto if is_proto else proto.SerializeToString())
    read_model(relus(10).SerializeToString())


@pytest.mark.parametrize("is_proto", [False, True])
def test_too_many_initializers_are_refused(is_proto: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_TENSORS", 10)
    tensors = [helper.make_tensor(f"w{i}", TensorProto.FLOAT, [1], [0.0]) for i in range(11)]
    proto = proto_of([helper.make_node("Relu", ["x"], ["y"])], *tensors)
    with pytest.raises(ModelError, match="over 10 initializers"):
        read_model(proto if is_proto else proto.SerializeToString())


@pytest.mark.parametrize("depth", [limits.MOST_DEPTH + 1, 200])
def test_bodies_too_deep_inside_each_other_are_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=r"bodies inside each other|nested too deep"):
        read_model(nested(depth))


def choosing(depth: int) -> onnx.ModelProto:
    """A right model whose If nodes are inside each other."""
    inner = helper.make_node("Relu", ["x"], ["y0"])
    for number in range(1, depth + 1):
        other = helper.make_node("Neg", ["x"], [f"n{number}"])
        bodies = [
            helper.make_graph([node], f"g{number}", [], [info(node.output[0])])
            for node in (inner, other)
        ]
        names = zip(("then_branch", "else_branch"), bodies, strict=True)
        inner = helper.make_node("If", ["c"], [f"y{number}"], **dict(names))
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([inner], "g", [info("x"), condition], [info(f"y{depth}")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("is_proto", [False, True])
def test_as_many_bodies_are_read_as_protobuf_reads(is_proto: bool) -> None:
    most, beyond = choosing(limits.MOST_DEPTH), choosing(limits.MOST_DEPTH + 1)
    read_model(most if is_proto else most.SerializeToString())
    with pytest.raises(ModelError, match=r"over 31 bodies inside each other.*join conditions"):
        read_model(beyond if is_proto else beyond.SerializeToString())


def test_bodies_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_DEPTH", 3)
    limits.check_limits(nested(3).graph)
    with pytest.raises(ModelError, match="over 3 bodies inside each other"):
        limits.check_limits(nested(4).graph)
    monkeypatch.setattr(limits, "MOST_NODES", 3)
    with pytest.raises(ModelError, match="over 3 nodes"):
        limits.check_limits(nested(3).graph)


NAMELESS_INPUT = info("").SerializeToString()
NAMELESS_TENSOR = helper.make_tensor("", TensorProto.INT8, [1], [0]).SerializeToString()
TYPELESS_TENSOR = onnx.TensorProto(name="w", dims=[1], raw_data=b"0").SerializeToString()


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        (1, "number 0 of its graph, that names no operator"),
        (5, "of element type 0"),
        (11, "has an input, number 0 of its graph, without a name"),
        (12, "has an output, number 0 of its graph, without a name"),
    ],
)
def test_the_first_item_with_nothing_in_it_ends_the_reading(
    field: int, wanted: str, is_file: bool, tmp_path: Path
) -> None:
    with pytest.raises(ModelError):  # imports what is needed
        read_model(empty_nodes(1))
    counts = []
    for size in (1000, 2000):
        source: bytes | str = repeated(text_field(field, b""), size)
        if is_file:
            path = tmp_path / "model.onnx"
            path.write_bytes(source)
            source = str(path)
        counts.append(events_of_refusing(source, wanted))
    assert abs(counts[0] - counts[1]) < 50  # whatever follows is not looked at


@pytest.mark.parametrize(
    ("field", "content", "wanted"),
    [
        (5, NAMELESS_TENSOR, "has an initializer, number 0 of its graph, without a name"),
        (5, TYPELESS_TENSOR, r"a tensor \('w'\) of element type 0"),
        (11, NAMELESS_INPUT, "has an input, number 0 of its graph, without a name"),
    ],
)
def test_what_nobody_can_use_is_refused_without_asking_onnx(
    field: int, content: bytes, wanted: str
) -> None:
    with pytest.raises(limits.LimitError, match=wanted):
        read_model(repeated(text_field(field, content), 3))


def test_a_proto_with_a_node_without_an_operator_is_refused() -> None:
    with pytest.raises(ModelError, match="names no operator"):
        read_model(onnx.load_from_string(empty_nodes(3)))


@pytest.mark.parametrize(
    ("field", "what"), [(13, "declared values"), (16, "metadata entries"), (99, "does not know")]
)
def test_items_are_counted_before_anything_is_made_of_them(
    field: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_TENSORS", 10)
    monkeypatch.setattr(limits, "MOST_ENTRIES", 10)
    data = text_field(field, b"") * 1000
    walk = limits.graph_fields(data, 0, len(data))
    assert len(list(itertools.islice(walk, 10))) == 10
    with pytest.raises(limits.LimitError, match=what):
        next(walk)


def test_entries_beside_the_graph_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ENTRIES", 10)
    proto = relus(1)
    helper.set_model_props(proto, {f"key {i}": "" for i in range(20)})
    with pytest.raises(ModelError, match="over 10 entries beside its graph"):
        read_model(proto.SerializeToString())


def test_sparse_tensors_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioinfer.runtime.onnx_reader.data.weights.DENSE_LIMIT_BYTES", 1000)
    proto = proto_of([helper.make_node("Relu", ["x"], ["y"])])
    for name in "ab":
        values = helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor(f"{name}i", TensorProto.INT64, [1], [0])
        sparse = helper.make_sparse_tensor(values, indices, [200])
        proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="sparse tensors of over 1000 bytes"):
        read_model(proto)


def test_functions_that_become_too_many_nodes_are_refused_at_once() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function(
            "my",
            f"F{i}",
            ["a"],
            ["b"],
            [
                helper.make_node(f"F{i + 1}", ["a"], ["t"], domain="my"),
                helper.make_node(f"F{i + 1}", ["t"], ["b"], domain="my"),
            ]
            if i < 40
            else [helper.make_node("Neg", ["a"], ["b"])],
            opsets,
        )
        for i in range(41)
    ]
    proto = proto_of([helper.make_node("F0", ["x"], ["y"], domain="my")])
    proto.functions.extend(functions)
    proto.opset_import.append(opsets[1])
    with (
        aioinfer.Core() as core,
        pytest.raises(ModelError, match=r"when its functions are inlined.*split the model"),
    ):
        core.load_network(proto, "REFERENCE")


def with_functions(count: int) -> onnx.ModelProto:
    proto = relus(1)
    nodes = [helper.make_node("Neg", ["a"], ["b"]) for _ in range(count)]
    opsets = [helper.make_opsetid("", 21)]
    proto.functions.append(helper.make_function("my", "F", ["a"], ["b"], nodes, opsets))
    return proto


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("kind", ["graph", "function", "bodies", "depth"])
def test_what_onnx_reads_is_bounded_before_protobuf_parses_it(
    kind: str, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = with_functions(6 if kind == "function" else 1).SerializeToString()
    graphs = {"graph": relus(6), "function": relus(1), "bodies": nested(6), "depth": nested(6)}
    bomb = functions + graphs[kind].SerializeToString()
    monkeypatch.setattr(limits, "MOST_DEPTH" if kind == "depth" else "MOST_NODES", 5)

    def refuse(_proto: object, _content: bytes) -> None:
        raise AssertionError("protobuf was asked")

    stand_in = type("ModelProto", (), {"ParseFromString": refuse})
    monkeypatch.setattr(source, "onnx", SimpleNamespace(ModelProto=stand_in))
    path = tmp_path / "model.onnx"
    path.write_bytes(bomb)
    with pytest.raises(limits.LimitError, match="has over 5 "):
        source.load_source(path if is_file else bomb)


def test_damaged_bytes_are_left_to_the_parser() -> None:
    whole = with_functions(3).SerializeToString()
    for end in range(len(whole)):
        limits.check_bytes(whole[:end])
