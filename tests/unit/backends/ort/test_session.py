from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.ort.properties import SessionSettings
from aioinfer.backends.ort.session import CPU_PROVIDER, Session, Terminator
from aioinfer.runtime.graph import DType, Model
from onnx_text import parse

SETTINGS = SessionSettings(CPU_PROVIDER)


def run(model: Model, **inputs: Any) -> list[Any]:
    return list(Session(model, SETTINGS).run(inputs, Terminator()))


def with_weight(model: Model, array: np.ndarray) -> Model:
    """Make the last input of a model a weight."""
    weight = model.graph.inputs.pop()
    weight.constant = array
    model.graph.add_initializer(weight)
    return model


def test_large_weights_are_shared_with_the_model() -> None:
    text = "g (int64[3] x, float[1000, 2] w) => (float[3, 2] y) { y = Gather (w, x) }"
    weight = np.zeros((1000, 2), np.float32)
    session = Session(with_weight(parse(text), weight), SETTINGS)
    weight[:] = 5  # nobody may do that; it shows whose memory the session reads
    (y,) = session.run({"x": np.arange(3)}, Terminator())
    np.testing.assert_array_equal(y, np.full((3, 2), 5, np.float32))


@pytest.mark.parametrize("op", ["Add", "Concat <axis = 3>"])
@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (1, 8, 8, 16)])
def test_weights_that_the_optimiser_transposes_are_read_transposed(
    op: str, shape: tuple[int, ...]
) -> None:
    rows, channels = shape[1], shape[3]
    image, weights = f"1, {channels}, {rows}, {rows}", ", ".join(map(str, shape))
    text = f"""g (float[{image}] x, float[{weights}] w) => (float[1, m, {rows}, {rows}] y) {{
        a = Transpose <perm = [0, 2, 3, 1]> (x)
        b = {op} (a, w)
        y = Transpose <perm = [0, 3, 1, 2]> (b) }}"""
    weight = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = np.ones((1, channels, rows, rows), np.float32)
    (y,) = run(with_weight(parse(text), weight), x=x)
    moved = weight.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(y, x + moved if op == "Add" else np.concatenate([x, moved], 1))


def test_the_optimiser_sees_what_weights_hold() -> None:
    text = """g (float[1000] x, float[1000] w) => (float[1000] y) { v = Neg (w) y = Add (x, v) }"""
    model = with_weight(parse(text), np.full(1000, 2, np.float32))
    (y,) = run(model, x=np.ones(1000, np.float32))
    np.testing.assert_array_equal(y, np.full(1000, -1, np.float32))


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [
        (DType.BFLOAT16, ml_dtypes.bfloat16),
        (DType.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (DType.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (DType.INT4, ml_dtypes.int4),
        (DType.UINT4, ml_dtypes.uint4),
    ],
)
def test_types_that_numpy_lacks_go_in_and_come_out(dtype: DType, numpy_dtype: Any) -> None:
    text = """g ({0}[2, 3] x, float[2, 3] f) => (float[2, 3] y, {0}[2, 3] z) {{
        y = Cast <to = 1> (x) z = Cast <to = {1}> (f) }}"""
    model = parse(text.format(dtype.label, dtype.value))
    floats = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    y, z = run(model, x=floats.astype(numpy_dtype), f=floats)
    np.testing.assert_array_equal(y, floats)
    assert z.dtype == numpy_dtype
    np.testing.assert_array_equal(z.astype(np.float32), floats)


def test_text_goes_in_as_bytes_or_str_and_comes_out_as_str() -> None:
    model = parse("g (string[n] x) => (string[n] y) { y = StringConcat (x, x) }")
    for array in (np.array([b"ab", b"c"]), np.array(["ab", "c"]), np.array(["ab", "c"], object)):
        (y,) = run(model, x=array)
        assert y.tolist() == ["abab", "cc"]


def test_sequences_go_in_and_come_out_as_lists() -> None:
    model = parse("g (seq(float[n]) x) => (seq(float[n]) y) { y = Identity (x) }")
    (y,) = run(model, x=[np.ones(2, np.float32), np.zeros(3, np.float32)])
    assert [item.tolist() for item in y] == [[1, 1], [0, 0, 0]]


def test_an_empty_optional_is_none() -> None:
    text = "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement (x) }"
    assert not run(parse(text), x=None)[0]
    assert run(parse(text), x=np.ones(2, np.float32))[0]


def test_any_memory_order_is_read() -> None:
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { y = Neg (x) }")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2].T
    np.testing.assert_array_equal(run(model, x=x)[0], -x)


def test_results_are_the_callers_own() -> None:
    text = "g (float[300] x, float[300] w) => (float[300] y, float[300] w) { y = Add (x, w) }"
    model = with_weight(parse(text), np.ones(300, np.float32))
    session = Session(model, SETTINGS)
    x = np.ones(300, np.float32)
    for result in session.run({"x": x}, Terminator()):
        result[:] = 7
    y, w = session.run({"x": x}, Terminator())
    np.testing.assert_array_equal(y, np.full(300, 2, np.float32))
    np.testing.assert_array_equal(w, np.ones(300, np.float32))


def test_a_terminated_run_ends_with_an_error() -> None:
    session = Session(parse("g (float[1] x) => (float[1] y) { y = Neg (x) }"), SETTINGS)
    terminator = Terminator()
    terminator.terminate()
    with pytest.raises(Exception, match="terminate"):
        session.run({"x": np.ones(1, np.float32)}, terminator)
    session.run({"x": np.ones(1, np.float32)}, Terminator())
