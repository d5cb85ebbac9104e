import pytest
from onnx import parser

from aioinfer.runtime.graph.traversal import all_nodes
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer import lower_opsets, oldest_opsets


def opset_of(body: str, opset: int = 21) -> int:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[3] x) => (float[3] y) {body}'
    return oldest_opsets(read_model(parser.parse_model(text)))[""]


@pytest.mark.parametrize(
    ("body", "version"),
    [
        ("{ y = Relu (x) }", 13),
        ("{ y = Tan (x) }", 7),
        ("{ a = Relu (x) y = HardSwish (a) }", 14),
        ("{ a = Cast <to = 11> (x) y = Cast <to = 1> (a) }", 13),
        ('{ y = Cast <to = 1, saturate = 1, round_mode = "up"> (x) }', 13),
        ('{ y = Cast <to = 1, round_mode = "down"> (x) }', 24),
        ("{ y = Cast <to = 1, saturate = 0> (x) }", 19),
        ("{ y = Swish (x) }", 24),
        ("{ a = Swish (x) y = Tan (a) }", 24),
    ],
)
def test_the_newest_operator_decides(body: str, version: int) -> None:
    assert opset_of(body, 24) == version


@pytest.mark.parametrize(("dtype", "version"), [("float", 16), ("bfloat16", 22)])
def test_a_version_that_only_admits_more_types_is_wanted_for_those(
    dtype: str, version: int
) -> None:
    text = (
        f'<ir_version: 10, opset_import: ["" : 22]> g ({dtype}[1,2,8,8] x, {dtype}[N,4] r, '
        f"int64[N] b) => ({dtype}[N,2,1,1] y) {{ y = RoiAlign (x, r, b) }}"
    )
    assert oldest_opsets(read_model(parser.parse_model(text)))[""] == version


def test_a_version_that_computes_something_else_is_kept() -> None:
    body = """{ s = Constant <value = float[1] {2.0}> () e = Constant <value = float[0] {}> ()
        y = Resize (x, e, s) }"""
    assert opset_of(body, 19) == 19


def test_a_value_of_unknown_type_keeps_the_version() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 22, "com.acme" : 1]> g (float[3] x) => (float[3] y) '
        "{ a = com.acme.Swirl (x) y = Tan (a) }"
    )
    assert oldest_opsets(read_model(parser.parse_model(text)))[""] == 22


def test_operators_in_bodies_count() -> None:
    body = """{ c = Constant <value = bool {1}> () y = If (c) <
        then_branch = t () => (float[3] a) { a = Tan (x) },
        else_branch = e () => (float[3] b) { b = Relu (x) }> }"""
    assert opset_of(body) == 13
    assert opset_of(body.replace("Tan", "Swish"), 24) == 24


def test_other_domains_keep_their_version() -> None:
    model = read_model(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21, "com.acme" : 3]> '
            "g (float[3] x) => (float[3] y) { a = com.acme.Swirl (x) y = Relu (a) }"
        )
    )
    assert oldest_opsets(model) == {"": 14, "com.acme": 3}


def test_a_standard_operator_that_onnx_lacks_keeps_the_version() -> None:
    assert opset_of("{ y = NoSuchThing (x) }") == 26


def test_what_an_older_operator_has_not_learnt_is_not_written() -> None:
    model = read_model(
        parser.parse_model(
            """<ir_version: 11, opset_import: ["" : 24]> g (float[3] x, bool c) => (float[3] y) {
              [outer] a = Cast <to = 1, saturate = 1, round_mode = "up"> (x)
              y = If (c) <
                then_branch = t () => (float[3] z) { z = Cast <to = 1, saturate = 1> (a) },
                else_branch = e () => (float[3] z) { z = Cast <to = 1> (a) }> }"""
        )
    )
    lower_opsets(model)
    assert model.opsets == {"": 13}
    casts = [node for node in all_nodes(model.graph) if node.op_type == "Cast"]
    assert [node.attributes for node in casts] == [{"to": 1}] * 3


def test_what_no_version_knows_stays_for_onnxruntime_to_refuse() -> None:
    model = read_model(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) '
            "{ y = Relu (x) }"
        )
    )
    (node,) = model.graph.nodes
    node.attributes["slope"] = 2
    lower_opsets(model)
    assert node.attributes == {"slope": 2}
