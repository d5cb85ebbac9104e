"""Damaged model files: a named error or an answer, never another exception, a crash or a hang."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import aioinfer
from aioinfer.errors import AioInferError, DeviceError, ModelError, UnsupportedOpError
from aioinfer.runtime.tensors.tensor import Port

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
WAIT_S = 5.0  # a flipped bit may ask for 2^60 iterations; what runs so long is stopped
LIMIT = 100_000  # elements of an input; a flipped bit may ask for more than is worth trying

SHAPES = """<ir_version: 8, opset_import: ["" : 17]>
shapes (float[n, 6] x) => (float[n, 4, 5] y, float[k, 12] z)
<int64[2] rest = {2, 3}, int64[1] zero = {0}, float[1] one = {1}, int64[3] reps = {1, 2, 1},
 int64[6] pads = {0, 0, 1, 0, 0, 1}, int64[1] five = {5}, int64 depth = {12},
 float[2] values = {0, 1}>
{
    s = Shape (x)
    rows = Gather (s, zero)
    want = Concat <axis = 0> (rows, rest)
    r = Reshape (x, want)
    filled = ConstantOfShape (want)
    e = Expand (one, want)
    a = Add (r, filled)
    m = Mul (a, e)
    t = Tile (m, reps)
    p = Pad (t, pads)
    y = Slice (p, zero, five)
    w = NonZero (rest)
    flat = Reshape (w, five)
    z = OneHot (rows, depth, values)
}
"""
FLOW = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
flow (float[n] x, bool flag, float[1, 2, 5, 5] image) => (float[n] y)
<float[1] k = {1.5}, int64 trips = {3}>
{
    double = local.Twice (x)
    i = If (flag) <
        then_branch = then () => (float[n] t) { t = Add (x, k) },
        else_branch = else () => (float[n] e) {
            pooled = MaxPool <kernel_shape = [2, 2]> (image)
            sum = ReduceSum <keepdims = 0> (pooled)
            e = Mul (x, sum)
        }
    >
    l = Loop (trips, , double) <
        body = body (int64 step, bool go, float[n] state) => (bool on, float[n] next) {
            on = Identity (go)
            number = Cast <to = 1> (step)
            next = Add (state, number)
        }
    >
    y = Add (i, l)
}
<domain: "local", opset_import: ["" : 17]>
Twice (a) => (b) { b = Add (a, a) }
"""

SOURCES: dict[str, Callable[[], bytes]] = {
    "digits": DIGITS.read_bytes,
    "shapes": lambda: onnx.parser.parse_model(SHAPES).SerializeToString(),
    "flow": lambda: onnx.parser.parse_model(FLOW).SerializeToString(),
}


@pytest.fixture(params=SOURCES)
def content(request: pytest.FixtureRequest) -> bytes:
    return SOURCES[request.param]()


def small_input(port: Port) -> object:
    """Make an input for whatever the damaged file asks for; an error if that is much."""
    if port.dtype is None:
        return []
    shape = [dim if isinstance(dim, int) else 2 for dim in port.shape or ()]
    if np.prod(shape, dtype=float) > LIMIT:
        raise ModelError(f"input {port} is too large for a test")
    return np.full(shape, "q", object) if port.dtype == object else np.ones(shape, port.dtype)


def use(core: aioinfer.Core, damaged: bytes) -> str:
    """Read, load and run a model once; name the error, or say that it was answered."""
    try:
        core.read_model(damaged)
        with core.load_network(damaged, "REFERENCE") as network:
            request = network.create_infer_request()
            request.start_async({port.name: small_input(port) for port in network.inputs})
            if not request.wait(WAIT_S):
                request.cancel()
                return "stopped"
            assert set(request.results) == {port.name for port in network.outputs}
            return "answered"
    except AioInferError as error:
        told = error
    assert str(told)
    assert type(told) is not AioInferError
    return type(told).__name__


def damage(content: bytes, source: random.Random) -> bytes:
    """Flip bits, overwrite bytes, or lose or repeat a few."""
    damaged = bytearray(content)
    kind = source.random()
    if kind < 0.7:
        for _ in range(source.choice([1, 1, 1, 2, 4, 8])):
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    elif kind < 0.85:
        damaged[source.randrange(len(damaged))] = source.choice([0, 1, 127, 128, 255])
    else:
        start = source.randrange(len(damaged))
        part = damaged[start : start + source.randrange(1, 40)]
        damaged[start : start + len(part)] = part * source.choice([0, 2])
    return bytes(damaged)


def test_the_models_are_good(core: aioinfer.Core, content: bytes) -> None:
    assert use(core, content) == "answered"


def test_a_truncated_file_is_an_error_or_a_smaller_model(
    core: aioinfer.Core, content: bytes
) -> None:
    cuts = sorted({*range(12), *range(12, len(content), max(1, len(content) // 50))})
    outcomes = [use(core, content[:cut]) for cut in cuts]
    assert outcomes[0] == "ModelError"
    assert outcomes.count("ModelError") > len(cuts) * 0.9


def test_a_file_with_flipped_bits_is_an_error_or_a_model(
    core: aioinfer.Core, content: bytes
) -> None:
    outcomes = set()
    for number in range(150):
        damaged = damage(content, random.Random(number))
        try:
            outcomes.add(use(core, damaged))
        except BaseException as error:
            raise AssertionError(f"damage {number} raised {error!r}") from error
    assert {"ModelError", "answered"} <= outcomes


@pytest.mark.parametrize("length", [1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("name", ["five", "reps", "pads", "rest", "depth"])
def test_a_length_that_asks_for_terabytes_takes_no_memory(
    core: aioinfer.Core, name: str, length: int
) -> None:
    proto = onnx.parser.parse_model(SHAPES)
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    tensor.int64_data[0] = length
    outcome = use(core, proto.SerializeToString())
    assert outcome in ("answered", "DeviceError", "TensorError", "GraphError", "ModelError")
    if (name, length) == ("reps", 1 << 40):
        assert outcome == "DeviceError"


def test_a_declared_length_of_terabytes_costs_nothing_until_an_input_has_it(
    core: aioinfer.Core,
) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1099511627776] x) => (y) {y = Neg (x)}'
    )
    with pytest.raises(DeviceError, match="would make 'y', float32\\[1099511627776\\]"):
        core.load_network(proto, "REFERENCE")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with core.load_network(proto, "REFERENCE") as network:
        outputs = network.create_infer_request().infer_sync(np.ones(2, np.float32))
    np.testing.assert_array_equal(outputs["y"], [-1, -1])


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (b"then_branch", b"then_brunch", ModelError, "did you mean 'then_branch'"),
        (b"\x04body", b"\x04bodi", ModelError, "did you mean 'body'"),
        (b"kernel_shape", b"kernel_shap\xe8", ModelError, "name b'kernel_shap.*not UTF-8"),
        (b"\x04flow", b"\x04fl\xf3w", ModelError, "not UTF-8"),
        (b"MaxPool", b"MaxPoul", UnsupportedOpError, "MaxPoul"),
    ],
)
def test_damage_is_told_where_it_is(
    core: aioinfer.Core, old: bytes, new: bytes, error: type[Exception], message: str
) -> None:
    content = SOURCES["flow"]()
    assert old in content
    with pytest.raises(error, match=message):
        core.load_network(content.replace(old, new), "REFERENCE")
