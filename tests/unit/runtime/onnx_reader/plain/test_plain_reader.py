"""Models that are read without onnx, compared with what onnx's own means make of them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model, Node, TensorType, Value
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model
from aioinfer.runtime.onnx_reader.plain.plain_opsets import NEWEST_IR_VERSION, NEWEST_OPSET
from aioinfer.runtime.onnx_reader.plain.plain_proto import decode_model
from aioinfer.runtime.onnx_reader.plain.plain_reader import read_plain_bytes, read_plain_file
from aioinfer.runtime.onnx_reader.wire.limits import LimitError
from aioinfer.runtime.type_inference import ContradictionError
from unit.runtime.onnx_reader.plain.models import (
    model_bytes,
    parsed,
    single_node,
    with_branches,
)

SUITE = Path(onnx.__file__).parent / "backend" / "test" / "data"
SUITE_FILES = sorted(SUITE.glob("*/*/model.onnx"))
SAMPLE_STEP = 5  # of the suite: enough of every operator, and a few seconds
LEAST_PLAIN_SHARE = 0.5


def _assert_same(ours: Model, theirs: Model) -> None:
    assert ours.opsets == theirs.opsets
    assert ours.ir_version == theirs.ir_version
    assert (ours.name, ours.producer, ours.metadata) == (
        theirs.name,
        theirs.producer,
        theirs.metadata,
    )
    assert [node.name for node in ours.graph.nodes] == [node.name for node in theirs.graph.nodes]
    for one, other in zip(ours.graph.nodes, theirs.graph.nodes, strict=True):
        _assert_same_node(one, other)
    for mine, yours in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
        assert [value.name for value in mine] == [value.name for value in yours]
        for one, other in zip(mine, yours, strict=True):
            _assert_as_exact(one, other)


def _assert_same_node(ours: Node, theirs: Node) -> None:
    assert (ours.op, ours.fused_from, ours.metadata) == (
        theirs.op,
        theirs.fused_from,
        theirs.metadata,
    )
    assert ours.attributes.keys() == theirs.attributes.keys(), ours.name
    for key, mine in ours.attributes.items():
        np.testing.assert_array_equal(mine, theirs.attributes[key], f"{ours.name}.{key}")
        assert type(mine) is type(theirs.attributes[key])
    assert len(ours.inputs) == len(theirs.inputs)
    for one, other in zip(ours.inputs, theirs.inputs, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None and one.constant is not None:
            assert other.constant is not None
            assert one.constant.dtype == other.constant.dtype
            assert one.constant.shape == other.constant.shape
            assert one.constant.tobytes() == other.constant.tobytes()
            assert not one.constant.flags.writeable
        elif one is not None and other is not None:
            assert one.name == other.name
    for one, other in zip(ours.outputs, theirs.outputs, strict=True):
        assert one.name == other.name
        _assert_as_exact(one, other)


def _assert_as_exact(ours: Value, theirs: Value) -> None:
    """What onnx tells of a value we tell, too."""
    mine, yours = ours.type, theirs.type
    if yours is None:
        return
    assert isinstance(mine, TensorType)
    assert isinstance(yours, TensorType)
    assert mine.dtype is yours.dtype, f"{ours.name}: {mine}, {yours}"
    if yours.shape is None:
        return
    assert mine.shape is not None
    assert len(mine.shape) == len(yours.shape), f"{ours.name}: {mine}, {yours}"
    for one, other in zip(mine.shape, yours.shape, strict=True):
        assert one == other or not isinstance(other, int), f"{ours.name}: {mine}, {yours}"


def test_models_of_onnx_suite_are_read_as_onnx_reads_them() -> None:
    plain_count = 0
    files = SUITE_FILES[::SAMPLE_STEP]
    assert len(files) > 100
    for file in files:
        ours = read_plain_file(file)
        if ours is not None:
            plain_count += 1
            ours.path = None
            _assert_same(ours, read_any_model(file.read_bytes()))
    assert plain_count / len(files) > LEAST_PLAIN_SHARE


def test_a_file_and_its_bytes_are_the_same(tmp_path: Path) -> None:
    weights = np.arange(60_000, dtype=np.float32).reshape(3, 20_000)
    data = model_bytes(
        [single_node("MatMul", "x", "w")], initializer=[numpy_helper.from_array(weights, "w")]
    )
    path = tmp_path / "g.onnx"  # the name of the graph as well
    path.write_bytes(data)
    from_file, from_bytes = read_plain_file(path), read_plain_bytes(data)
    assert from_file is not None
    assert from_bytes is not None
    assert from_file.path == path
    _assert_same(from_file, from_bytes)
    constant = from_file.graph.initializers["w"].constant
    assert constant is not None
    assert constant.ctypes.data % 64 == 0
    np.testing.assert_array_equal(constant, weights)


@pytest.mark.parametrize("opset", [13, 14, 17, 18, NEWEST_OPSET])
@pytest.mark.parametrize("axes", [None, [1], [0, -1]])
def test_axes_of_reductions_become_an_input(opset: int, axes: list[int] | None) -> None:
    inputs, attributes, constants = ["x"], {}, []
    if axes is not None and opset < 18:
        attributes["axes"] = axes
    elif axes is not None:
        inputs.append("axes")
        constants.append(numpy_helper.from_array(np.array(axes, np.int64), "axes"))
    data = model_bytes(
        [single_node("ReduceMean", *inputs, **attributes)], opset, initializer=constants
    )
    ours = read_plain_bytes(data)
    assert ours is not None
    [node] = ours.graph.nodes
    assert "axes" not in node.attributes
    _assert_same_node(node, next(iter(read_any_model(data).graph.nodes)))


@pytest.mark.parametrize("opset", [13, 18])
def test_a_split_says_how_many_outputs_it_has(opset: int) -> None:
    more = {"num_outputs": 3} if opset >= 18 else {}
    node = helper.make_node("Split", ["x"], ["y", "z", "a"], "split", axis=1, **more)
    ours = read_plain_bytes(model_bytes([node], opset))
    assert ours is not None
    [split] = ours.graph.nodes
    assert split.attributes == {"axis": 1, "num_outputs": 3}
    assert [str(value.type) for value in split.outputs] == ["float32[2,1]"] * 3


def test_the_file_names_open_lengths_of_outputs() -> None:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])
    ours = read_plain_bytes(
        model_bytes([single_node("Relu", "x")], shape=["n", 3], outputs=[output])
    )
    assert ours is not None
    assert str(ours.outputs[0].type) == "float32[rows,3]"


@pytest.mark.parametrize("length", ["n", 2])
def test_pads_that_are_computed_leave_no_rank_to_onnx(length: int | str) -> None:
    pads = """pairs = Reshape (given, two) turned = Transpose <perm = [1, 0]> (pairs)
        pads = Reshape (turned, all) y = Pad (x, pads)"""  # as exporters turn those of PyTorch
    graph = f"""g (float[{length}, 3] x, int64[4] given) => (float y)
        <int64[2] two = {{2, 2}}, int64[1] all = {{-1}}> {{ {pads} }}"""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    data = proto.SerializeToString()
    ours = read_plain_bytes(data)
    assert ours is not None
    assert str(ours.outputs[0].type) == "float32[?,?]"
    _assert_same(ours, read_any_model(data))


def test_lengths_that_depend_on_data_stay_open() -> None:
    data = model_bytes([single_node("NonZero", "x")])
    ours = read_plain_bytes(data)
    assert ours is not None
    assert str(ours.outputs[0].type) == "int64[2,?]"
    _assert_same(ours, read_any_model(data))


def test_what_a_shape_has_beside_its_lengths_is_passed_over() -> None:
    proto = onnx.load_from_string(model_bytes([single_node("Relu", "x")]))
    text = proto.graph.input[0].type.SerializeToString()
    assert text.endswith(b"\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03")
    odd = text.replace(b"\x0a\x02\x08\x03", b"\x1a\x02\x08\x03")  # field 3, which is none
    ours = read_plain_bytes(proto.SerializeToString().replace(text, odd))
    assert ours is not None
    assert str(ours.inputs[0].type) == "float32[2]"


def test_nodes_without_names_get_those_that_onnx_reading_gives() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"], "same"),
        helper.make_node("Neg", ["b"], ["c"], "same"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    data = model_bytes(nodes)
    ours = read_plain_bytes(data)
    assert ours is not None
    _assert_same(ours, read_any_model(data))


def _with_function() -> bytes:
    model = onnx.load_from_string(model_bytes([single_node("Relu", "x")]))
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    model.functions.append(helper.make_function("f", "F", ["a"], ["b"], body, opsets))
    return bytes(model.SerializeToString())


def _with_sequences() -> bytes:
    graph = """g (float[2, 3] x, int64 count, bool go) => (float[n, 3] y) {
        s = SequenceConstruct (x)
        t = Loop (count, go, s) <body = b (int64 i, bool on, seq(float[2, 3]) u)
            => (bool still, seq(float[2, 3]) v) { still = Identity (on) v = SequenceInsert (u, x) }>
        y = ConcatFromSequence <axis = 0> (t)
    }"""
    return parsed(graph)


def _nested_loops(count: int) -> bytes:
    """Loops inside each other, the innermost of which changes the length of its state."""
    made = "still = Identity (on) next = Concat <axis = 0> (s, s)"
    for depth in range(count - 1):
        made = f"""still = Identity (on) next = Loop (i, on, s) <body = b{depth}
            (int64 j, bool on_, float[n, 3] s_) => (bool still_, float[m, 3] next_) {{
                still_ = Identity (on_) h = Neg (s_)
                next_ = Loop (j, on_, h) <body = c (int64 i, bool on, float[n, 3] s)
                    => (bool still, float[m, 3] next) {{ {made} }}> }}>"""
    return parsed(
        f"""g (float[2, 3] x, int64 count, bool go) => (float[k, 3] y) {{
        y = Loop (count, go, x) <body = b (int64 i, bool on, float[n, 3] s)
            => (bool still, float[m, 3] next) {{ {made} }}> }}"""
    )


def _with_constant(outputs: Sequence[str] = ("c",), **value: Any) -> bytes:
    constant = helper.make_node("Constant", [], list(outputs), "constant", **value)
    return model_bytes([constant, single_node("Mul", "x", "c")])


def _with_external_data() -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    return model_bytes([single_node("MatMul", "x", "w")], initializer=[tensor])


NOT_PLAIN = {
    "an old opset": model_bytes([single_node("Relu", "x")], 12),
    "an opset to come": model_bytes([single_node("Relu", "x")], NEWEST_OPSET + 1),
    "an operator before its time": model_bytes([single_node("Gelu", "x")], 19),
    "an operator of somebody": model_bytes(
        [single_node("Swirl", "x", domain="com.acme")], opsets=[helper.make_opsetid("com.acme", 1)]
    ),
    "an operator that nobody knows": model_bytes([single_node("Swirl", "x")]),
    "nodes in another order": model_bytes(
        [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    ),
    "a value that nothing makes": model_bytes([single_node("Add", "x", "nothing")]),
    "a value that is made twice": model_bytes([single_node("Relu", "x"), single_node("Neg", "x")]),
    "axes that are no integers": model_bytes([single_node("ReduceMean", "x", axes=[1.5])]),
    "a constant of another kind": _with_constant(value_int="abc"),
    "a list of constants of another kind": _with_constant(value_floats=[1, 2]),
    "a constant that is a list": _with_constant(value_float=[1.5]),
    "a constant for two outputs": _with_constant(["c", "d"], value_float=1.5),
    "a padding that is a tensor": model_bytes(
        [single_node("Conv", "x", "w", auto_pad=numpy_helper.from_array(np.array([1, 2])))],
        shape=[1, 1, 4],
        initializer=[numpy_helper.from_array(np.zeros((1, 1, 2), np.float32), "w")],
    ),
    "functions": _with_function(),
    "a loop of sequences": _with_sequences(),
    "loops deep inside each other": _nested_loops(3),
    "a branch that uses what comes later": with_branches("p = Neg (y)"),
    "a branch that defines an outer value anew": with_branches("r = Neg (x) p = Neg (r)"),
    "a branch that gives nothing that is there": with_branches("q = Neg (x)"),
    "branches of other ranks": with_branches("p = Flatten (x)", "q = ReduceSum <keepdims = 0> (x)"),
    "an impossible branch": with_branches("z = Concat <axis = 0> (w, w) p = Add (x, z)"),
    "data elsewhere": _with_external_data(),
    "strings": model_bytes(
        [single_node("Identity", "s")],
        initializer=[helper.make_tensor("s", TensorProto.STRING, [1], [b"text"])],
    ),
    "nothing": b"",
    "no protobuf": b"\xff\xfe this is no model",
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_left_to_onnx(data: bytes, tmp_path: Path) -> None:
    assert read_plain_bytes(data) is None
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    assert read_plain_file(path) is None


def _assert_judged(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Read what is damaged, and have it found not plain, if so, by a check and not by chance."""
    read_plain_bytes(data)
    assert not [record.exc_text for record in caplog.records if record.exc_info]
    caplog.clear()


def test_a_damaged_file_is_never_worse_than_not_plain(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioinfer")
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    bias = helper.make_tensor("b", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Concat", ["m", "m"], ["c"], "both", axis=1),
        helper.make_node("Add", ["m", "b"], ["s"], "sum"),
        helper.make_node("Constant", [], ["k"], "number", value_ints=[-1, 4]),
        helper.make_node("Reshape", ["s", "k"], ["r"], "reshaped"),
        helper.make_node("ReduceMean", ["r"], ["n"], "mean", axes=[-1]),
        helper.make_node("Resize", ["n", "", "scales"], ["z"], "resized"),
        helper.make_node("Squeeze", ["z", "i"], ["y"], "squeezed"),
    ]
    scales = numpy_helper.from_array(np.array([2, 1], np.float32), "scales")
    axis = helper.make_tensor("i", TensorProto.INT64, [1], [-1])
    data = model_bytes(nodes, initializer=[weights, bias, scales, axis])
    assert read_plain_bytes(data) is not None
    chance = np.random.default_rng(0)
    impossible = 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(int(chance.integers(1, 4))):
            damaged[chance.integers(len(data))] ^= 1 << int(chance.integers(8))
        try:
            _assert_judged(bytes(damaged), caplog)
        except (ContradictionError, LimitError):
            impossible += 1
    assert 0 < impossible < 1000
    for length in range(len(data)):
        _assert_judged(data[:length], caplog)


def _impossible_model() -> bytes:
    axes = numpy_helper.from_array(np.array([7], np.int64), "axes")
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sum")
    return model_bytes([node], initializer=[axes])


def test_a_contradiction_is_an_error_that_names_file_and_node(tmp_path: Path) -> None:
    path = tmp_path / "impossible.onnx"
    path.write_bytes(_impossible_model())
    for read in (read_plain_file, read_any_model):
        with pytest.raises(
            ModelError, match=r"impossible.onnx'?: ReduceSum \(node 'sum'\).*axis 7"
        ):
            read(path)


def test_numbers_of_more_than_64_bits_are_cut_as_protobuf_cuts_them() -> None:
    axis = helper.make_tensor("i", TensorProto.INT64, [1], [-1])
    data = model_bytes([single_node("Unsqueeze", "x", "i")], initializer=[axis])
    least = b"\xff" * 9
    place = data.index(least + b"\x01") + len(least)
    longer = data[:place] + b"\x03" + data[place + 1 :]
    ours = read_plain_bytes(longer)
    assert ours is not None
    _assert_same(ours, read_any_model(longer))


def test_what_we_fail_at_is_left_to_onnx(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Model:
        raise OverflowError("too large")

    monkeypatch.setattr("aioinfer.runtime.onnx_reader.plain.plain_reader.build_model", fail)
    with caplog.at_level(logging.DEBUG, "aioinfer"):
        assert read_plain_bytes(model_bytes([single_node("Relu", "x")])) is None
    assert "too large" in caplog.text


def test_a_lack_of_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Model:
        raise MemoryError

    monkeypatch.setattr("aioinfer.runtime.onnx_reader.plain.plain_reader.build_model", fail)
    with pytest.raises(MemoryError):
        read_plain_bytes(model_bytes([single_node("Relu", "x")]))


@pytest.mark.parametrize("path", ["a\0b.onnx", "a\ud800.onnx"])
def test_a_path_that_no_file_can_have_is_left_to_onnx(path: str) -> None:
    assert read_plain_file(Path(path)) is None


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[Model | None] = []
    reader = threading.Thread(target=lambda: found.append(read_plain_file(path)), daemon=True)
    reader.start()
    reader.join(10)
    assert found == [None]


def test_why_a_model_is_not_plain_is_told_to_who_debugs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "aioinfer"):
        assert read_plain_bytes(_with_function()) is None
    assert "functions" in caplog.text


def test_the_numbers_of_the_newest_opset_are_those_of_onnx() -> None:
    assert onnx.defs.onnx_opset_version() == NEWEST_OPSET
    opset = helper.make_opsetid("", NEWEST_OPSET)
    assert helper.find_min_ir_version_for([opset]) == NEWEST_IR_VERSION


PROGRAM = """
import json, sys
import aioinfer
model = aioinfer.Core().read_model(sys.argv[1])
print(json.dumps([len(model.graph), sorted(sys.modules)]))
"""


def test_an_ordinary_model_is_read_without_importing_onnx(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_bytes([single_node("Relu", "x")]))
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    count, modules = json.loads(done.stdout)
    assert count == 1
    assert not [name for name in modules if name.split(".")[0] in ("onnx", "google")]


def unread(*tensors: onnx.TensorProto) -> bytes:
    """A model with a constant that is read, and some that are not."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    used = numpy_helper.from_array(np.ones(4, np.float32), "used")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "used"], ["y"])], "g", [x], [y], [used, *tensors]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    made: bytes = model.SerializeToString()
    return made


def test_only_constants_that_something_reads_are_made() -> None:
    spares = [numpy_helper.from_array(np.zeros(3, np.int8), f"w{i}") for i in range(5)]
    spares.append(helper.make_tensor("numbers", TensorProto.INT64, [2], [1, 2]))
    data = unread(*spares)
    reads = []

    def read(start: int, end: int) -> np.ndarray:
        reads.append(data[start:end])
        return np.frombuffer(data, np.uint8, end - start, start).copy()

    graph = decode_model(data, read, lambda opsets: None).graph
    assert reads == [np.ones(4, np.float32).tobytes()]
    assert [name for name, array in graph.initializers if array is not None] == ["used"]
    model = read_plain_bytes(data)
    assert model is not None
    assert list(model.graph.initializers) == ["used"]


def test_a_constant_that_nothing_reads_is_no_input() -> None:
    proto = onnx.load_from_string(unread(numpy_helper.from_array(np.zeros(3, np.int8), "w")))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.INT8, [3]))
    model = read_plain_bytes(proto.SerializeToString())
    assert model is not None
    assert [value.name for value in model.graph.inputs] == ["x"]


@pytest.mark.parametrize("names", [["w", "w"], ["y"], ["used"]])
def test_a_constant_that_nothing_reads_takes_its_name(names: list[str]) -> None:
    spares = [numpy_helper.from_array(np.zeros(3, np.int8), name) for name in names]
    assert read_plain_bytes(unread(*spares)) is None


@pytest.mark.parametrize("dims", [[2], [4], [1 << 62, 1 << 62], []])
def test_a_constant_that_nothing_reads_has_the_data_of_its_shape(dims: list[int]) -> None:
    spare = numpy_helper.from_array(np.zeros(3, np.int8), "w")
    del spare.dims[:]
    spare.dims.extend(dims)
    assert read_plain_bytes(unread(spare)) is None
