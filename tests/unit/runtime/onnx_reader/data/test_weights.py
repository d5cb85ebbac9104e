import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import DType, Graph, Model
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from unit.runtime.onnx_native.same_models import same_arrays

BIG = np.arange(600, dtype=np.float32)
SMALL = np.arange(4, dtype=np.float32)


def proto_with(
    *tensors: onnx.TensorProto, opset: int = 9, body: str = "y = Relu (x)"
) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[N] x, bool c) => (y) {{ {body} }}'
    )
    proto.graph.initializer.extend(tensors)
    return proto


def constant(graph: Graph, name: str) -> np.ndarray:
    array = graph.initializers[name].constant
    assert array is not None
    return array


def tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(array, name)


def set_value(node: onnx.NodeProto, array: np.ndarray) -> None:
    node.attribute.append(onnx.helper.make_attribute("value", tensor("", array)))


def test_weights_of_every_size_survive_the_conversion() -> None:
    model = read_model(proto_with(tensor("big", BIG), tensor("small", SMALL)))
    assert same_arrays(constant(model.graph, "big"), BIG)
    assert same_arrays(constant(model.graph, "small"), SMALL)
    assert str(model.graph.initializers["big"].type) == "float32[600]"


def test_weights_of_bodies_and_constant_nodes_survive_the_conversion() -> None:
    proto = proto_with(
        opset=9,
        body="""k = Constant () y = If (c) <
          then_branch = yes () => (float[600] p) { inner = Constant () p = Add (inner, w) },
          else_branch = no () => (float[600] q) { q = Add (k, k) }>""",
    )
    set_value(proto.graph.node[0], BIG + 1)
    body = proto.graph.node[1].attribute[0].g
    set_value(body.node[0], BIG + 2)
    body.initializer.append(tensor("w", BIG + 3))
    model = read_model(proto)
    read_body = model.node("If_0").bodies()[0]
    assert same_arrays(constant(model.graph, "k"), BIG + 1)
    assert same_arrays(constant(read_body, "inner"), BIG + 2)
    assert same_arrays(constant(read_body, "w"), BIG + 3)


def test_weights_of_functions_survive_the_inlining() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 9, "local" : 1]>
        g (float[600] x) => (float[600] y) { t = local.f (x) y = local.f (t) }
        <domain: "local", opset_import: ["" : 9]> f (a) => (b) { w = Constant () b = Add (a, w) }"""
    )
    set_value(proto.functions[0].node[0], BIG)
    values = read_model(proto).graph.initializers.values()
    assert len(values) == 2
    assert all(value.constant is not None and same_arrays(value.constant, BIG) for value in values)


def test_constants_cannot_be_written_to() -> None:
    model = read_model(proto_with(tensor("big", BIG), tensor("small", SMALL)))
    for name in ("big", "small"):
        with pytest.raises(ValueError, match="read-only"):
            constant(model.graph, name)[0] = 7


@pytest.mark.parametrize("ir_version", [3, 8])
def test_weights_that_are_listed_as_inputs_are_constants(ir_version: int) -> None:
    proto = proto_with(tensor("w", SMALL), body="y = Add (x, w)")
    proto.ir_version = ir_version
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4]))
    model = read_model(proto)
    assert [value.name for value in model.inputs] == ["x", "c"]
    assert same_arrays(constant(model.graph, "w"), SMALL)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value_int = 7", np.array(7, np.int64)),
        ("value_ints = [1, 2]", np.array([1, 2], np.int64)),
        ("value_float = 0.5", np.array(0.5, np.float32)),
        ("value_floats = [0.5, 2.0]", np.array([0.5, 2], np.float32)),
        ('value_string = "a"', np.array("a", object)),
        ('value_strings = ["a", "b"]', np.array(["a", "b"], object)),
        ("value = int8[2] {1, -1}", np.array([1, -1], np.int8)),
    ],
)
def test_constant_nodes_become_initializers(attribute: str, expected: np.ndarray) -> None:
    model = read_model(proto_with(opset=13, body=f"y = Constant <{attribute}> ()"))
    assert len(model.graph) == 0
    assert same_arrays(constant(model.graph, "y"), expected)
    assert model.outputs[0] is model.graph.initializers["y"]


def numbers(dtype: DType) -> np.ndarray:
    if dtype is DType.STRING:
        return np.array([["", "ab\0"], ["é", "d"]], object)
    return np.array([[0, 1], [1, 1], [0, 1]]).astype(dtype.numpy)


@pytest.mark.parametrize("opset", [13, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.label)
def test_tensors_of_every_element_type_are_read(dtype: DType, opset: int) -> None:
    array = numbers(dtype)
    tensors = [tensor("raw", array)]
    if dtype is not DType.STRING:
        items = array.flatten().tolist()
        tensors.append(onnx.helper.make_tensor("typed", dtype.value, array.shape, items))
    graph = read_model(proto_with(*tensors, opset=opset)).graph
    for name, value in graph.initializers.items():
        assert value.constant is not None
        assert same_arrays(value.constant, array), name


@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT2, DType.BFLOAT16, DType.STRING])
def test_large_tensors_of_unusual_element_types_survive_the_conversion(dtype: DType) -> None:
    array = np.resize(numbers(dtype), 9001)
    graph = read_model(proto_with(tensor("large", array))).graph
    assert same_arrays(constant(graph, "large"), array)


def test_bytes_that_are_no_bool_are_read_as_true() -> None:
    odd = onnx.TensorProto(name="odd", dims=[3], data_type=DType.BOOL.value, raw_data=b"\0\2\1")
    assert constant(read_model(proto_with(odd)).graph, "odd").tolist() == [False, True, True]


def sparse(dims: list[int], indices: np.ndarray, values: np.ndarray) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(
        dims=dims, values=tensor("sparse", values), indices=tensor("", indices)
    )


def test_sparse_weights_become_dense() -> None:
    values = np.array([5, 6], np.float32)
    expected = np.zeros((2, 3), np.float32)
    expected[0, 2], expected[1, 1] = 5, 6
    for indices in (np.array([2, 4]), np.array([[0, 2], [1, 1]])):
        proto = proto_with()
        proto.graph.sparse_initializer.append(sparse([2, 3], indices, values))
        assert same_arrays(constant(read_model(proto).graph, "sparse"), expected)


def test_a_sparse_constant_node_becomes_a_dense_initializer() -> None:
    proto = proto_with(opset=11, body="y = Constant ()")
    attribute = proto.graph.node[0].attribute.add(name="sparse_value")
    attribute.type = onnx.AttributeProto.SPARSE_TENSOR
    attribute.sparse_tensor.CopyFrom(sparse([4], np.array([1]), np.array([9], np.float32)))
    assert constant(read_model(proto).graph, "y").tolist() == [0, 9, 0, 0]


@pytest.mark.parametrize(
    ("dims", "indices"),
    [
        ([2, 3], [6]),
        ([2, 3], [-1]),
        ([2, 3], [[0, 3]]),
        ([2, 3], [1, 2]),
        ([-2, 3], [1]),
        ([1 << 40, 1 << 40], [1]),
    ],
)
def test_sparse_weights_that_do_not_fit_are_refused(dims: list[int], indices: list[int]) -> None:
    proto = proto_with()
    values = np.array([5], np.float32)
    proto.graph.sparse_initializer.append(sparse(dims, np.array(indices), values))
    with pytest.raises(ModelError, match="tensor 'sparse'"):
        read_model(proto)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"data_type": 1, "dims": [2], "raw_data": b"1234"}, "needs 8 bytes, but has 4"),
        ({"data_type": 1, "dims": [2], "float_data": [1]}, "needs 2 items in float_data"),
        ({"data_type": 1, "dims": [2]}, "needs 2 items in float_data"),
        ({"data_type": 14, "dims": [2], "float_data": [1, 2]}, "needs 4 items in float_data"),
        ({"data_type": 22, "dims": [3], "int32_data": [1]}, "needs 2 items in int32_data"),
        ({"data_type": 8, "dims": [2], "string_data": [b"a"]}, "has 1 items"),
        ({"data_type": 8, "dims": [1], "string_data": [b"\xff"]}, "decode"),
        ({"data_type": 1, "dims": [-1], "float_data": []}, "negative length"),
        ({"data_type": 1, "dims": [1 << 62, 1 << 62], "raw_data": b""}, "needs"),
        ({"data_type": 77, "dims": [1], "raw_data": b"1"}, "element type 77"),
        ({"data_type": 0, "dims": [1], "raw_data": b"1"}, "element type 0"),
    ],
)
def test_a_tensor_that_is_not_what_it_says_is_refused(fields: dict, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_model(proto_with(onnx.TensorProto(name="bad", **fields)))


def test_a_large_model_is_read_with_the_weights_it_shares() -> None:
    proto = proto_with(tensor("big", BIG), opset=13, body="a = Add (x, big) y = Add (a, big)")
    model: Model = read_model(proto)
    assert len(model.graph.initializers["big"].uses) == 2
