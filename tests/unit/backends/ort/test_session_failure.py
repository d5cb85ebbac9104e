import pytest

from aioinfer.backends.ort.session_failure import explain_run, original_names
from aioinfer.errors import DeviceError, TensorError
from onnx_text import parse

FAILED = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. "
    "Name:'Reshape_0' Status Message: /onnxruntime_src/onnxruntime/core/x.h:91 shapes differ"
)
ORIGINS = {"Reshape_0": ("flatten", "squeeze")}


class EPFail(Exception):  # noqa: N818  (onnxruntime's name)
    pass


def test_the_error_names_device_network_and_the_nodes_of_the_file() -> None:
    error = explain_run(RuntimeError(FAILED), "ONNXRUNTIME.CPU", "net", ORIGINS)
    assert type(error) is TensorError
    assert str(error) == (
        "Reshape (nodes 'flatten', 'squeeze') of network 'net' on ONNXRUNTIME.CPU failed: shapes "
        "differ; check its inputs"
    )


def test_a_node_that_onnxruntime_made_is_said_to_be_its() -> None:
    error = explain_run(RuntimeError(FAILED), "ONNXRUNTIME.CPU", "net", {})
    assert "node 'Reshape_0', made by onnxruntime" in str(error)


@pytest.mark.parametrize(
    "raised", [EPFail("lost"), RuntimeError("Failed to allocate memory for requested buffer")]
)
def test_a_device_that_fails_is_no_wrong_input(raised: Exception) -> None:
    assert type(explain_run(raised, "ONNXRUNTIME.CUDA", "net", {})) is DeviceError


def test_an_error_without_a_node_still_says_where() -> None:
    error = explain_run(ValueError("odd"), "ONNXRUNTIME.CPU", "net", {})
    assert str(error).startswith("network 'net' on ONNXRUNTIME.CPU failed: odd")


def test_the_names_are_those_of_the_file() -> None:
    model = parse("g (float[1] x) => (float[1] y) { [act] y = Relu (x) }")
    assert original_names(model.graph.nodes) == {"act": ("act",)}
