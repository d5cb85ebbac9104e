import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from unit.backends.cpu.comparing import assert_same_as_reference, model_of
from unit.backends.cpu.kernels.plans import implementations

STORED = [np.int8, np.uint8, np.int16, np.uint16]


def numbers(shape):
    return np.asarray(np.random.default_rng(0).standard_normal(shape) * 40, np.float32)


def scales(count):
    made = np.asarray(np.random.default_rng(1).random(count) + 0.25, np.float32)
    return made if count != () else np.asarray(made, np.float32)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("axis", [None, 1, -1, 0])
def test_quantize(core, dtype, axis) -> None:
    x = numbers((3, 4, 5))
    count = () if axis is None else (x.shape[axis],)
    zero = np.full(count, 3, dtype)
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **attributes)
    model = model_of([node], {"x": x}, constants={"s": scales(count), "z": zero})
    assert_same_as_reference(core, model, {"x": x})
    assert implementations(core, model, {"x": x}) == ["native:float_elementwise"]


@pytest.mark.parametrize("dtype", STORED)
def test_what_is_no_number_is_stored_as_the_least(core, dtype) -> None:
    x = numbers((3, 40))
    x[:, ::7], x[:, 3], x[:, 5] = np.nan, np.inf, -np.inf
    limits = np.iinfo(dtype)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": np.float32(0.1), "z": np.asarray(limits.max - 2, dtype)}
    made = assert_same_as_reference(core, model_of([node], {"x": x}, constants=constants), {"x": x})
    assert made["y"][0, :6].tolist()[::5] == [limits.min, limits.min]
    assert made["y"][0, 3] == limits.max


@pytest.mark.parametrize("dtype", [*STORED, np.int32])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_dequantize(core, dtype, axis) -> None:
    x = np.abs(numbers((3, 4, 5))).astype(dtype)
    count = () if axis is None else (x.shape[axis],)
    zero = np.full(count, 0 if dtype is np.int32 else 3, dtype)
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **attributes)
    model = model_of([node], {"x": x}, constants={"s": scales(count), "z": zero})
    assert_same_as_reference(core, model, {"x": x})
    assert implementations(core, model, {"x": x}) == ["native:float_elementwise"]


def test_without_a_zero_point(core) -> None:
    x = numbers((7,))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["q", "y"], {"s": scales((1,))})
    assert_same_as_reference(core, model, {"x": x})


def test_scales_that_are_computed(core) -> None:
    inputs = {"x": numbers((2, 3)), "s": scales(()), "z": np.asarray(7, np.uint8)}
    model = model_of([helper.make_node("QuantizeLinear", [*inputs], ["y"])], inputs)
    assert_same_as_reference(core, model, inputs)


def test_what_does_not_fit_is_the_nearest_that_does(core) -> None:
    x = np.array([1e9, -1e9, 0.5, 1.5, 2.5, -0.5], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": np.asarray(1, np.float32), "z": np.asarray(0, np.int8)}
    assert_same_as_reference(core, model_of([node], {"x": x}, constants=constants), {"x": x})


def test_dynamic_quantisation(core) -> None:
    x = numbers((3, 4))
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    assert_same_as_reference(core, model_of([node], {"x": x}, ["y", "s", "z"]), {"x": x})


SMALL = (
    TensorProto.INT4,
    TensorProto.UINT4,
    TensorProto.INT16,
    TensorProto.UINT16,
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E5M2,
)


def stored_and_read(kind, real, lengths, **attributes):
    """Return a model that stores x in a type and reads it again, and its scales of ``lengths``."""
    rng = np.random.default_rng(2)
    is_float = kind in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
    points = np.zeros(lengths) if is_float else rng.integers(0, 7, lengths)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    scales_made = np.asarray(rng.random(lengths) + 0.25)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(real))
    constants = [
        helper.make_tensor("s", element, lengths, scales_made.reshape(-1)),
        helper.make_tensor("z", kind, lengths, np.asarray(points).reshape(-1)),
    ]
    x = helper.make_tensor_value_info("x", element, [4, 8])
    y = helper.make_tensor_value_info("y", element, [4, 8])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", sorted(SMALL))
@pytest.mark.parametrize("real", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("lengths", "attributes"),
    [((), {}), ((8,), {"axis": 1}), ((4, 2), {"axis": 1, "block_size": 4})],
)
def test_small_types_and_blocks_are_those_of_onnxruntime(
    core, kind, real, lengths, attributes
) -> None:
    model = stored_and_read(kind, real, lengths, **attributes)
    given = {"x": (numbers((4, 8)) / 16).astype(real)}
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    assert all(answer.supported for answer in core.query_network(model, "CPU").values())
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(given)["y"]
    assert found.dtype == real
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=1e-3)
    assert np.unique(wanted).size > 3


def test_what_numpy_stores_says_so(core) -> None:
    model = stored_and_read(TensorProto.INT4, np.float32, ())
    assert implementations(core, model, {"x": numbers((4, 8))}) == ["numpy", "numpy"]
