"""The form of nodes, held to their operators: arity, required attributes, and attributes' kinds."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.defs
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper

from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.onnx_reader.conversion.schema_signature import of_schema
from aioinfer.runtime.onnx_reader.plain.plain_opsets import NEWEST_OPSET, OLDEST_OPSET
from aioinfer.runtime.onnx_reader.plain.plain_reader import read_plain_bytes
from aioinfer.runtime.onnx_reader.signatures.attribute_values import (
    FLAGS,
    LEAST,
    VALUES,
    find_wrong_value,
)
from aioinfer.runtime.onnx_reader.signatures.signature import UNLIMITED, Signature, find_mistake
from aioinfer.runtime.onnx_reader.signatures.signature_rows import ROWS
from aioinfer.runtime.onnx_reader.signatures.signature_table import find_signature, row, unwrapped

OPERATORS = sorted(
    {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
)
FORM = Signature("so", (1, 2), (1, 1), {"axis": "int", "scales": "floats"}, ("axis",))


def proto(*nodes: NodeProto, opset: int = 17, functions: Any = (), **more: Any) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions, **more)


def node(op_type: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> NodeProto:
    inputs_of = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op_type, inputs_of, outputs.split(), name="it", **attributes)


@pytest.mark.parametrize("opset", range(OLDEST_OPSET, NEWEST_OPSET + 1))
def test_the_table_says_what_onnx_says(opset: int) -> None:
    for op_type in OPERATORS:
        try:
            known = of_schema(onnx.defs.get_schema(op_type, opset))
        except onnx.defs.SchemaError:
            known = None
        assert find_signature(op_type, opset) == known, f"{op_type}; run .ci/write_signatures.py"


def test_a_row_is_written_as_it_is_read() -> None:
    rows = unwrapped(ROWS)
    assert len(rows) > len(OPERATORS) / 2
    for line in rows:
        op_type, since = line.split()[:2]
        found = find_signature(op_type, max(int(since), OLDEST_OPSET))
        assert found is not None
        assert row(op_type, int(since), found) == line


def test_an_operator_that_onnx_does_not_have_has_no_signature() -> None:
    assert find_signature("Swirl", 17) is None
    assert find_signature("Gelu", 17) is None


@pytest.mark.parametrize(
    ("inputs", "outputs", "attributes", "mistake"),
    [
        (["a"], ["y"], {"axis": "int"}, None),
        (["a", ""], [""], {"axis": None, "scales": "floats", "__layout": "string"}, None),
        ([], ["y"], {"axis": "int"}, "has 0 inputs, and takes 1 to 2"),
        (["a", "b", "c"], ["y"], {"axis": "int"}, "has 3 inputs, and takes 1 to 2"),
        (["a"], [], {"axis": "int"}, "has 0 outputs, and gives 1"),
        (["", "b"], ["y"], {"axis": "int"}, "lacks its input 0, which is not optional"),
        (["a"], ["y"], {}, "lacks its attribute 'axis', an int"),
        (["a"], ["y"], {"axis": "floats"}, "wants an int for its attribute 'axis', and has floats"),
        (["a"], ["y"], {"axes": "int"}, "has no attribute 'axes'; did you mean 'axis'?"),
        (["a"], ["y"], {"zzz": "int"}, "has no attribute 'zzz'; it has ['axis', 'scales']"),
    ],
)
def test_a_mistake_is_named(
    inputs: list[str], outputs: list[str], attributes: dict[str, str | None], mistake: str | None
) -> None:
    assert find_mistake(FORM, inputs, outputs, attributes) == mistake


def test_any_number_of_inputs_is_taken_where_the_operator_does() -> None:
    form = Signature("ov", (1, UNLIMITED), (1, UNLIMITED))
    assert find_mistake(form, ["", *"abcdef"], [*"uvw"], {}) is None
    assert find_mistake(form, [], ["u"], {}) == "has 0 inputs, and takes at least 1"
    assert (
        find_mistake(form, ["a", "b", ""], ["u"], {}) == "lacks its input 2, which is not optional"
    )


WRONG = [
    (node("Add"), "'it' (Add of opset 17) has 1 input, and takes 2"),
    (node("Add", "x -"), "'it' (Add of opset 17) lacks its input 1, which is not optional"),
    (node("Relu", "x x"), "'it' (Relu of opset 17) has 2 inputs, and takes 1"),
    (node("TopK", "x x"), "'it' (TopK of opset 17) has 1 output, and gives 2"),
    (node("Concat", "x x"), "'it' (Concat of opset 17) lacks its attribute 'axis', an int"),
    (node("Concat", "x -", axis=0), "'it' (Concat of opset 17) lacks its input 1"),
    (node("Softmax", axis=1.0), "(Softmax of opset 17) wants an int for its attribute 'axis', and"),
    (
        node("Conv", "x x", pads=1),
        "(Conv of opset 17) wants ints for its attribute 'pads', and has",
    ),
    (
        node("Conv", "x x", pad=[1]),
        "(Conv of opset 17) has no attribute 'pad'; did you mean 'pads'?",
    ),
    (node("Relu", alpha=1.0), "(Relu of opset 17) has no attribute 'alpha'; it has none"),
    (
        node("BitShift", "x x", direction="wrap"),
        "has 'wrap' as its attribute 'direction', which is",
    ),
    (
        node("Mod", "x x", fmod=3),
        "(Mod of opset 17) has 3 as its attribute 'fmod', which is one of",
    ),
    (node("Resize", "x - x", mode="area"), "is one of ['nearest', 'linear', 'cubic']"),
    (node("Conv", "x x", auto_pad="SAME"), "has 'SAME' as its attribute 'auto_pad', which is"),
    (node("If", then_branch=1, else_branch=1), "wants a graph for its attribute 'else_branch'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_node_that_its_operator_does_not_fit_is_refused(
    wrong: NodeProto, message: str, is_file: bool
) -> None:
    model = proto(wrong)
    data = model.SerializeToString()
    assert read_plain_bytes(data) is None
    with pytest.raises(ModelError) as raised:
        read_model(data if is_file else model)
    assert message in str(raised.value)


OPEN = {
    *("Cast.to", "CategoryMapper.default_string", "Constant.value_string", "Einsum.equation"),
    *("LabelEncoder.default_string", "RegexFullMatch.pattern", "StringNormalizer.locale"),
    "StringSplit.delimiter",
}
"""Attributes that may be any text."""


def test_each_text_of_an_operator_is_one_of_a_few_or_known_to_be_open() -> None:
    found, defaults = set(), []
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, known in schema.attributes.items():
            if schema.domain not in ("", "ai.onnx.ml") or known.type.name != "STRING":
                continue
            found.add(f"{schema.name}.{name}")
            if known.default_value.name and schema.since_version > 1:
                defaults.append((schema.name, name, known.default_value.s))
    closed = {f"{op_type}.{name}" for op_type, choices in VALUES.items() for name in choices}
    assert found - closed == OPEN
    assert [item for item in defaults if find_wrong_value(item[0], [item[1:]])] == []


@pytest.mark.parametrize("op_type", sorted(VALUES))
def test_a_value_that_is_none_of_an_operators_few_is_named(op_type: str) -> None:
    for name, known in VALUES[op_type].items():
        right = [item.encode() if isinstance(item, str) else item for item in known]
        assert find_wrong_value(op_type, [("axis", "Left"), (name, right)]) is None
        assert find_wrong_value(op_type, [(name, known[0])]) is None
        for wrong in ("wrap around", -1, b"\xff"):
            mistake = find_wrong_value(op_type, [(name, wrong)])
            assert f"attribute {name!r}, which is one of" in str(mistake)


def test_flags_are_integers_whose_defaults_are_flags() -> None:
    found, defaults = set(), []
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain not in ("", "ai.onnx.ml"):
            continue
        for name, known in schema.attributes.items():
            if name in FLAGS:
                assert known.type.name in ("INT", "INTS")
                found.add(name)
                defaults.append((name, known.default_value.i))
    assert found == FLAGS
    assert find_wrong_value("Any", defaults) is None


@pytest.mark.parametrize("name", sorted(FLAGS))
@pytest.mark.parametrize("wrong", [-1, 2, 1 << 32])
def test_a_flag_that_is_neither_0_nor_1_is_named(name: str, wrong: int) -> None:
    assert find_wrong_value("Any", [(name, [0, 1])]) is None
    mistake = find_wrong_value("Any", [("axis", 7), (name, wrong)])
    assert mistake == f"has {wrong} as its attribute {name!r}, which is one of [0, 1]"


@pytest.mark.parametrize("is_file", [True, False])
def test_a_flag_that_would_be_cut_to_32_bits_is_refused(is_file: bool) -> None:
    model = proto(node("CumSum", "x x", exclusive=1 << 32))
    with pytest.raises(ModelError, match=r"'it' .*has 4294967296 as its attribute 'exclusive'"):
        read_model(model.SerializeToString() if is_file else model)


X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
BODY = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "body", [X], [Y])
NEEDED: dict[str, dict[str, Any]] = {"LpPool": {"kernel_shape": [2]}, "Scan": {"body": BODY}}


@pytest.mark.parametrize("direction", [-1, 2, 1 << 32])
@pytest.mark.parametrize("name", ["scan_input_directions", "scan_output_directions"])
def test_a_flag_in_a_list_is_refused_however_the_model_is_read(name: str, direction: int) -> None:
    more: dict[str, Any] = {"body": BODY, "num_scan_inputs": 1}
    model = proto(node("Scan", **more, **{name: [direction]}))
    for given in (model, model.SerializeToString()):
        with pytest.raises(ModelError, match=rf"'it' .*has {direction} as its attribute '{name}'"):
            read_model(given)
    read_model(proto(node("Scan", **more, **{name: [1]})))


@pytest.mark.parametrize("op_type", sorted(LEAST))
def test_a_value_below_an_attributes_least_is_refused_however_the_model_is_read(
    op_type: str,
) -> None:
    for name, least in LEAST[op_type].items():
        more = NEEDED.get(op_type, {})
        for wrong in (least - 1, -1, -(2**62)):
            model = proto(node(op_type, **more, **{name: wrong}))
            for given in (model, model.SerializeToString()):
                with pytest.raises(ModelError, match=rf"'it' .*has {wrong} as its .*{name}"):
                    read_model(given)
        assert find_wrong_value(op_type, [(name, least)]) is None


def test_an_attribute_that_is_there_twice_is_refused() -> None:
    twice = node("Softmax", axis=1)
    twice.attribute.add().CopyFrom(twice.attribute[0])
    with pytest.raises(ModelError, match=r"'it' \(Softmax of opset 17\) has an attribute twice"):
        read_model(proto(twice))


def test_the_opset_of_the_file_counts_and_not_the_newest() -> None:
    with pytest.raises(ModelError, match=r"'it' \(Clip of opset 6\) has 3 inputs, and takes 1"):
        read_model(proto(node("Clip", "x x x"), opset=6))
    read_model(proto(node("Clip", min=0.0), opset=6))
    with pytest.raises(ModelError, match=r"\(ReduceMax of opset 13\) has 2 inputs, and takes 1"):
        read_model(proto(node("ReduceMax", "x x"), opset=13).SerializeToString())
    read_model(proto(node("ReduceMax", axes=[0]), opset=13).SerializeToString())


def test_bodies_are_checked_too() -> None:
    info = helper.make_empty_tensor_value_info("o")
    body = helper.make_graph([node("Neg", "x x", "o")], "body", [], [info])
    outer = helper.make_node("If", ["c"], ["y"], name="if", then_branch=body, else_branch=body)
    model = proto(outer)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with pytest.raises(ModelError, match=r"'it' \(Neg of opset 17\) has 2 inputs, and takes 1"):
        read_model(model)


def test_functions_are_checked_with_their_own_opset_and_what_a_call_gives_them() -> None:
    inner = node("LeakyRelu", "a", "b")
    inner.attribute.add(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT)
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("my", "Leak", ["a"], ["b"], [inner], opsets, ["alpha"])
    mine = helper.make_opsetid("my", 1)

    def calling(**attributes: Any) -> onnx.ModelProto:
        call = helper.make_node("Leak", ["x"], ["y"], name="call", domain="my", **attributes)
        return proto(call, functions=[function], opsets=[mine])

    read_model(calling(alpha=0.5))
    with pytest.raises(
        ModelError, match=r"'call/it' \(LeakyRelu of opset 17\) wants a float for its attribute"
    ):
        read_model(calling(alpha=[1]))


def test_machine_learning_operators_are_checked_and_foreign_ones_are_not() -> None:
    ml = [helper.make_opsetid("ai.onnx.ml", 3)]
    wrong = helper.make_node("Scaler", ["x", "x"], ["y"], name="it", domain="ai.onnx.ml")
    with pytest.raises(ModelError, match=r"'it' \(ai.onnx.ml.Scaler of opset 3\) has 2 inputs"):
        read_model(proto(wrong, opsets=ml))
    foreign = helper.make_node("Scaler", ["x", ""], ["y"], domain="com.acme", turns=1)
    read_model(proto(foreign, opsets=[helper.make_opsetid("com.acme", 1)]))
    read_model(proto(node("Swirl", "x x", turns=1)))
