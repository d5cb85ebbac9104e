import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from aioinfer.errors import UnsupportedOpError
from unit.backends.cpu.comparing import assert_same_as_reference, model_of
from unit.backends.cpu.kernels.plans import implementations

NUMERIC = [
    np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.bool_, np.uint8, np.int8,
    np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64,
]  # fmt: skip


def number_of(dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def cast(x, dtype, **kwargs):
    node = helper.make_node("Cast", ["x"], ["y"], to=number_of(dtype))
    return model_of([node], {"x": x}, **kwargs), {"x": x}


@pytest.mark.parametrize("given", NUMERIC)
def test_between_all_types(core, given) -> None:
    x = np.array([0, 1, 2, 3, 100, 127], np.float32)
    x = (x + 0.5 * (np.dtype(given).kind in "fV")).astype(given)
    outputs = [np.dtype(wanted).name for wanted in NUMERIC]
    nodes = [
        helper.make_node("Cast", ["x"], [name], to=number_of(wanted))
        for name, wanted in zip(outputs, NUMERIC, strict=True)
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}, outputs), {"x": x})


@pytest.mark.parametrize("wanted", [np.int8, np.int32, np.int64, np.float32, np.float16, np.bool_])
@pytest.mark.parametrize("given", [np.float32, np.int32, np.int64])
def test_what_is_below_zero_is_cut_towards_it(core, given, wanted) -> None:
    x = np.array([-0.5, -1.5, -2.0, -100.9, 0.0], np.float32).astype(given)
    assert_same_as_reference(core, *cast(x, wanted))


@pytest.mark.parametrize("wanted", [np.int32, np.int64, np.bool_, np.float16])
def test_what_does_not_fit(core, wanted) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 70000.0, 3e9], np.float32)
    assert_same_as_reference(core, *cast(x, wanted))


@pytest.mark.parametrize("wanted", [np.int8, np.uint8, np.int16, np.uint32])
def test_integers_wrap_around(core, wanted) -> None:
    x = np.array([-1, 127, 128, 255, 256, 2**31, -(2**40), 2**40 + 3], np.int64)
    assert_same_as_reference(core, *cast(x, wanted))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 700)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_shapes(core, shape, dynamic) -> None:
    x = np.full(shape, 2.5, np.float32)
    assert_same_as_reference(core, *cast(x, np.int64, dynamic=dynamic), INFERENCE_NUM_THREADS=2)


def test_cast_like(core) -> None:
    inputs = {"x": np.array([1.5, -2.5], np.float32), "like": np.zeros(3, np.int64)}
    model = model_of([helper.make_node("CastLike", ["x", "like"], ["y"])], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("given", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("wanted", [np.float32, np.int32, np.bool_])
def test_what_is_usual_is_native(core, given, wanted) -> None:
    if given is not wanted:
        found = implementations(core, *cast(np.ones((3, 4), given), wanted))
        kind = "float" if given is np.float32 else "integer"
        assert found == [f"native:{kind}_elementwise"]


def test_types_without_a_kernel_are_refused(core) -> None:
    model, _ = cast(np.ones(3, np.float32), ml_dtypes.float8_e4m3fn)
    with pytest.raises(UnsupportedOpError, match="float8e4m3fn"):
        core.load_network(model, "CPU")
