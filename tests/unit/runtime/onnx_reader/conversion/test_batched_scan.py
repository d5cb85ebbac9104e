from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx.backend.test.loader import load_model_tests

import aioinfer
from aioinfer.errors import ModelError
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model

DEVICES = ["REFERENCE", "ONNXRUNTIME"]
SUMS = "(float[2] s, float[2] v) => (float[2] t, float[2] o) { t = Add (s, v) o = Identity (t) }"


def model_of(graph: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 3, opset_import: ["" : 8]> {graph}')


def summing(inputs: str = "(, a, x)") -> onnx.ModelProto:
    return model_of(
        "sums (float[B, 2] a, float[B, S, 2] x) => (float[B, 2] y, float[B, S, 2] z) {"
        f"[sum] y, z = Scan <num_scan_inputs = 1, body = sum {SUMS}> {inputs} }}"
    )


def run(proto: onnx.ModelProto, device: str, *inputs: np.ndarray) -> list[np.ndarray]:
    if device == "ONNXRUNTIME":
        pytest.importorskip("onnxruntime")
    with aioinfer.Core() as core, core.load_network(proto, device) as network:
        found = network.create_infer_request().infer_sync(inputs)
        return [found[port.name] for port in network.outputs]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_the_case_of_onnxs_own_suite(device: str) -> None:
    case = next(case for case in load_model_tests(kind="node") if case.name == "test_scan_sum")
    folder = Path(case.model_dir)

    def stored(kind: str) -> list[np.ndarray]:
        files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    inputs = [array for array in stored("input") if array.size]  # one stands for sequence_lens
    found = run(onnx.load(folder / "model.onnx"), device, *inputs)
    for array, expected in zip(found, stored("output"), strict=True):
        np.testing.assert_allclose(array, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_each_element_of_the_batch_is_scanned_by_itself(device: str) -> None:
    a, x = numbers(2, 2), numbers(2, 3, 2)
    y, z = run(summing(), device, a, x)
    expected = a[:, None] + x.cumsum(axis=1)
    np.testing.assert_allclose(z, expected, rtol=1e-5)
    np.testing.assert_allclose(y, expected[:, -1], rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_two_states_and_two_scan_inputs_one_of_them_from_the_end(device: str) -> None:
    proto = model_of(
        """both (float[2, 2] a, float[2] b, float[2, 3, 2] x, float[2, 3, 2] w, float[2] k)
          => (float[2, 2] y, float[2] n, float[2, 3, 2] z) {
          y, n, z = Scan <num_scan_inputs = 2, directions = [0, 1], body = one (
            float[2] s, float c, float[2] v, float[2] u
          ) => (float[2] s_out, float c_out, float[2] o) {
            c_out = Neg (c)
            o = Sub (v, u)
            scaled = Mul (o, k)
            s_out = Add (s, scaled)
          }> (, a, b, x, w)
        }"""
    )
    a, b, x, w = numbers(2, 2), numbers(2), numbers(2, 3, 2), numbers(2, 3, 2) * 2
    k = np.array([2, 3], np.float32)
    y, n, z = run(proto, device, a, b, x, w, k)
    differences = x - w[:, ::-1]
    np.testing.assert_allclose(z, differences, rtol=1e-5)
    np.testing.assert_allclose(y, a + (differences * k).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(n, -b)


@pytest.mark.parametrize("device", DEVICES)
def test_one_in_the_body_of_another_has_a_batch_of_its_own(device: str) -> None:
    proto = model_of(
        """nested (float[2, 4, 2] a, float[2, 5, 4, 3, 2] x)
          => (float[2, 4, 2] y, float[2, 5, 4, 3, 2] z) {
          y, z = Scan <num_scan_inputs = 1, body = outside (float[4, 2] s, float[4, 3, 2] v)
            => (float[4, 2] t, float[4, 3, 2] o) {
              t, o = Scan <num_scan_inputs = 1, body = inside (float[2] p, float[2] q)
                => (float[2] r, float[2] copy) { r = Add (p, q) copy = Identity (r) }> (, s, v)
            }> (, a, x)
        }"""
    )
    a, x = numbers(2, 4, 2), numbers(2, 5, 4, 3, 2)
    y, z = run(proto, device, a, x)
    sums = np.moveaxis(x, 1, 2).reshape(2, 4, 15, 2).cumsum(axis=2) + a[:, :, None]
    np.testing.assert_allclose(z, np.moveaxis(sums.reshape(2, 4, 5, 3, 2), 2, 1), rtol=1e-4)
    np.testing.assert_allclose(y, sums[:, :, -1], rtol=1e-4)


def test_the_operators_in_the_body_and_behind_it_are_converted() -> None:
    # Until opset 12, Softmax went over all axes from the given one on.
    proto = model_of(
        """soft (float[2, 2, 2] a, float[2, 3, 2, 2] x)
          => (float[2, 2, 2] y, float[2, 3, 2, 2] z) {
          last, z = Scan <num_scan_inputs = 1, body = one (float[2, 2] s, float[2, 2] v)
            => (float[2, 2] t, float[2, 2] o) {
              t = Add (s, v)
              o = Softmax <axis = 0> (v)
            }> (, a, x)
          y = Softmax <axis = 1> (last)
        }"""
    )
    a, x = numbers(2, 2, 2), numbers(2, 3, 2, 2)
    y, z = run(proto, "REFERENCE", a, x)
    exponents, last = np.exp(x), np.exp(a + x.sum(axis=1))
    np.testing.assert_allclose(z, exponents / exponents.sum((2, 3), keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(y, last / last.sum((1, 2), keepdims=True), rtol=1e-4)


def test_the_outer_scan_keeps_the_name_and_the_inner_one_stands_for_it() -> None:
    (outer,) = read_model(summing()).graph.nodes
    (inner,) = outer.bodies()[0].nodes
    assert (outer.op_type, outer.name, outer.fused_from) == ("Scan", "sum", ("sum",))
    assert (inner.op_type, inner.name, inner.fused_from) == ("Scan", "sum/Scan", ("sum",))
    names = [node.fused_from for node in inner.bodies()[0].nodes]
    assert names == [("sum/body/Add_0",), ("sum/body/Identity_0",)]


def test_a_value_that_the_body_uses_may_be_called_as_the_new_ones_would_be() -> None:
    proto = summing()
    proto.graph.input[0].name = proto.graph.node[0].input[1] = "sum/Scan/input_0"
    body = proto.graph.node[0].attribute[1].g
    total = onnx.helper.make_node("ReduceSum", ["sum/Scan/input_0"], ["all"], keepdims=0)
    body.node.append(total)
    body.node.add(op_type="Add", input=["t", "all"], output=["more"])
    body.node[1].input[0] = "more"
    a, x = numbers(2, 2), numbers(2, 3, 2)
    _, z = run(proto, "REFERENCE", a, x)
    np.testing.assert_allclose(z, (a[:, None] + x.cumsum(axis=1)) + a.sum(), rtol=1e-5)


def test_the_converter_knows_the_ranks_in_the_body_and_behind_it() -> None:
    proto = model_of(
        """last (float[2, 2] a, float[2, 3, 2] x) => (float[2, 2] y, float[2, 3, 2] z) {
          last, z = Scan <num_scan_inputs = 1, body = one (float[2] s, float[2] v)
            => (float[2] t, float[2] o) {
              t = Add (s, v)
              twice = Add (t, t)
              o = Softmax <axis = 0> (twice)
            }> (, a, x)
          y = Softmax <axis = 1> (last)
        }"""
    )
    outer, behind = read_model(proto).graph.nodes
    (inner,) = outer.bodies()[0].nodes
    assert behind.op_type == "Softmax"  # of a value of any rank, it would be four nodes
    assert [node.op_type for node in inner.bodies()[0].nodes] == ["Add", "Add", "Softmax"]


def test_types_that_only_the_body_declares_are_those_of_a_whole_sequence_around_it() -> None:
    proto = summing()
    proto.opset_import.add(domain="com.acme", version=1)
    for name in ("a", "x"):
        proto.graph.node.add(
            domain="com.acme", op_type="Swirl", input=[name], output=[f"new_{name}"]
        )
    proto.graph.node[0].input[1:] = ["new_a", "new_x"]
    *_, outer = read_model(proto).graph.nodes
    found = [value.type for value in outer.bodies()[0].inputs]
    assert found == [TensorType(DType.FLOAT32, shape) for shape in ((2,), (None, 2))]


def test_the_inputs_and_outputs_of_the_model_keep_their_ranks_and_symbols() -> None:
    graph = read_model(summing()).graph
    state, sequence = (TensorType(DType.FLOAT32, shape) for shape in (("B", 2), ("B", "S", 2)))
    assert [value.type for value in graph.inputs] == [state, sequence]
    assert [value.type for value in graph.outputs] == [state, sequence]


def test_lengths_of_the_sequences_are_refused_with_the_reason() -> None:
    proto = summing("(n, a, x)")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, ["B"]))
    with pytest.raises(ModelError, match="'sum' is a Scan of opset 8 with sequence_lens"):
        read_model(proto)


@pytest.mark.parametrize("inputs", ["(, a)", "(, a, x, x)"])
def test_a_scan_that_does_not_fit_its_body_is_refused(inputs: str) -> None:
    with pytest.raises(ModelError, match="'sum' is a Scan that does not fit its body"):
        read_model(summing(inputs))
