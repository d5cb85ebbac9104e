"""What every device must show, shown by TOY: ``pytest test_toy.py`` where both are installed."""

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import PropertyError, TensorError, UnsupportedOpError
from aioinfer.testing import conformance_cases

MODEL = parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> gate (float[n] x, float[n] g) => (float[n] y)
       { a = Mul (x, g) [act] y = Relu (a) }"""
)
SIGMOID = parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> soft (float[n] x) => (float[n] y)
       { [soft] a = Sigmoid (x) y = Add (a, a) }"""
)


@pytest.fixture
def core():
    with aioinfer.Core() as made:
        yield made


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_toy_conforms(case, core):
    case.run(core, "TOY")


def test_a_node_without_a_kernel_is_refused_with_the_reason(core):
    assert "no kernel for Sigmoid" in core.query_network(SIGMOID, "TOY")["soft"].reason
    with pytest.raises(UnsupportedOpError, match="HETERO:TOY"):
        core.load_network(SIGMOID, "TOY")


def test_another_device_takes_what_toy_cannot(core):
    with core.load_network(SIGMOID, "HETERO:TOY,REFERENCE") as network:
        (y,) = network.create_infer_request().infer_sync(np.zeros(2, np.float32)).values()
        assert len(network.execution_devices) == 2
    assert y.tolist() == [1, 1]


def test_values_that_are_not_finite_are_found_where_they_are_made(core):
    x = np.full(3, 3e38, np.float32)
    with core.load_network(MODEL, "TOY", {"TOY_CHECK_FINITE": True}) as network:
        request = network.create_infer_request()
        with pytest.raises(TensorError, match="Mul"):
            request.infer_sync([x, x])


def test_what_it_cannot_honour_it_refuses(core):
    with pytest.raises(PropertyError, match="leave it at 'f32'"):
        core.load_network(MODEL, "TOY", {"INFERENCE_PRECISION_HINT": "f16"})
