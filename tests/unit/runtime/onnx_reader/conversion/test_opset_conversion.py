import numpy as np
import onnx
import onnx.defs
import onnx.parser
import onnx.reference
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader.conversion import opset_conversion
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer import write_model

NEWEST = onnx.defs.onnx_opset_version()


def one_node(node: str, opset: int, inputs: str = "float[2,3,4] x") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["" : {opset}]> one ({inputs}) => (float[2,3,4] y)'
        f"{{ [original] {node} }}"
    )


def run(model: Model, **feeds: np.ndarray) -> np.ndarray:
    return onnx.reference.ReferenceEvaluator(write_model(model)).run(None, feeds)[0]


def test_every_model_is_brought_to_the_newest_opset() -> None:
    for opset in (9, 13, NEWEST):
        assert read_model(one_node("y = Relu (x)", opset)).opsets == {"": NEWEST}


@pytest.mark.parametrize("opset", [14, 20])
def test_a_model_whose_operators_have_not_changed_is_not_given_to_the_converter(
    monkeypatch: pytest.MonkeyPatch, opset: int
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("its time grows with the square of the nodes")

    monkeypatch.setattr(opset_conversion, "convert_version", refuse)
    model = read_model(one_node("z = Relu (x) w = Add (z, x) y = NeverInTheStandard (w)", opset))
    assert model.opsets == {"": NEWEST}
    assert [node.op_type for node in model.graph.nodes] == ["Relu", "Add", "NeverInTheStandard"]


def test_an_operator_that_has_changed_is_converted_beside_some_that_have_not() -> None:
    model = read_model(one_node("z = Relu (x) w = Tanh (z) y = Softmax <axis = 1> (w)", 9))
    x = np.zeros((2, 3, 4), np.float32)
    np.testing.assert_allclose(run(model, x=x), np.full((2, 3, 4), 1 / 12), rtol=1e-5)


def test_an_old_softmax_computes_what_it_did_and_is_not_relabelled() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    exponents = np.exp(x.reshape(2, 12))  # until opset 12 it went over all axes from `axis` on
    expected = (exponents / exponents.sum(1, keepdims=True)).reshape(2, 3, 4)
    model = read_model(one_node("y = Softmax <axis = 1> (x)", 9))
    np.testing.assert_allclose(run(model, x=x), expected, rtol=1e-5)


def test_an_old_softmax_in_a_body_is_converted_too() -> None:
    model = read_model(
        onnx.parser.parse_model(
            """<ir_version: 7, opset_import: ["" : 9]>
            loop (float[2,3,4] x, int64 n, bool go) => (float[2,3,4] y) {
              y = Loop (n, go, x) <body = body (int64 i, bool c, float[2,3,4] v)
                => (bool c_out, float[2,3,4] v_out) {
                  c_out = Identity (c)
                  v_out = Softmax <axis = 1> (v)
                }>
            }"""
        )
    )
    x = np.zeros((2, 3, 4), np.float32)
    found = run(model, x=x, n=np.int64(1), go=np.bool_(True))
    np.testing.assert_allclose(found, np.full((2, 3, 4), 1 / 12), rtol=1e-5)


def test_a_newer_opset_is_refused_and_both_versions_are_named() -> None:
    with pytest.raises(ModelError, match=rf"opset {NEWEST + 1} of ai.onnx.*opset {NEWEST};"):
        read_model(one_node("y = Relu (x)", NEWEST + 1))


def test_a_newer_opset_of_the_ml_domain_is_refused() -> None:
    proto = one_node("y = Relu (x)", NEWEST)
    proto.opset_import.add(domain="ai.onnx.ml", version=99)
    with pytest.raises(ModelError, match=r"opset 99 of ai\.onnx\.ml"):
        read_model(proto)


def test_a_model_that_does_not_say_its_opset_is_refused() -> None:
    proto = one_node("y = Relu (x)", 13)
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="does not say of which opset"):
        read_model(proto)


def test_two_opsets_of_one_domain_are_refused() -> None:
    proto = one_node("y = Relu (x)", 13)
    proto.opset_import.add(domain="ai.onnx", version=14)
    with pytest.raises(ModelError, match="opset 13 and opset 14 of "):
        read_model(proto)


def test_the_long_name_of_the_standard_domain_is_the_short_one() -> None:
    proto = one_node("y = Relu (x)", 13)
    proto.graph.node[0].domain = proto.opset_import[0].domain = "ai.onnx"
    model = read_model(proto)
    assert model.opsets == {"": NEWEST}
    assert [node.domain for node in model.graph.nodes] == [""]


@pytest.mark.parametrize("opset", [9, NEWEST])
def test_an_operator_that_nobody_knows_is_kept_for_the_device_to_refuse(opset: int) -> None:
    model = read_model(one_node("t = Softmax (x) y = Swirl <turns = 2> (t)", opset))
    node = next(node for node in model.graph.nodes if node.op_type == "Swirl")
    assert (node.domain, node.attributes, model.opsets) == ("", {"turns": 2}, {"": NEWEST})


def test_an_operator_of_another_domain_is_kept_with_its_version() -> None:
    proto = one_node("y = com.acme.Swirl (x)", 9)
    proto.opset_import.add(domain="com.acme", version=3)
    model = read_model(proto)
    assert [node.op for node in model.graph.nodes] == ["com.acme::Swirl"]
    assert model.opsets == {"": NEWEST, "com.acme": 3}


def test_an_operator_that_is_younger_than_the_models_opset_is_refused() -> None:
    with pytest.raises(ModelError, match="'original' is a Gelu, which came with a later opset"):
        read_model(one_node("y = Gelu (x)", 9))


def test_what_onnx_cannot_convert_is_refused_with_its_reason() -> None:
    with pytest.raises(ModelError, match=rf"from opset 1 to opset {NEWEST}: No Adapter"):
        read_model(one_node("y = Tile (x, x, x)", 1))


def test_empty_outputs_of_an_old_batch_normalization_do_not_stop_the_conversion() -> None:
    node = "y, , , , = BatchNormalization (x, s, s, s, s)"
    model = read_model(one_node(node, 7, inputs="float[2,3,4] x, float[3] s"))
    assert [len(node.outputs) for node in model.graph.nodes] == [1]
