import pytest
from onnx import parser

from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer import oldest_opsets


def opset_of(body: str, opset: int = 21) -> int:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[3] x) => (float[3] y) {body}'
    return oldest_opsets(read_model(parser.parse_model(text)))[""]


@pytest.mark.parametrize(
    ("body", "version"),
    [
        ("{ y = Relu (x) }", 14),
        ("{ y = Tan (x) }", 22),
        ("{ a = Relu (x) y = Identity (a) }", 25),
        ("{ y = Swish (x) }", 24),
    ],
)
def test_the_newest_operator_decides(body: str, version: int) -> None:
    assert opset_of(body, 24) == version


def test_operators_in_bodies_count() -> None:
    body = """{ c = Constant <value = bool {1}> () y = If (c) <
        then_branch = t () => (float[3] a) { a = Tan (x) },
        else_branch = e () => (float[3] b) { b = Relu (x) }> }"""
    assert opset_of(body) == 25  # If itself
    inner = body.replace("If (c)", "If (c)").replace("Tan", "Swish")
    assert opset_of(inner, 24) == 25


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
