"""Nodes of types that CPU has no kernel for are computed by numpy, in their own precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from exhaustive import all_but
from presence import skip_if_missing
from unit.backends.cpu.comparing import model_of, run
from unit.backends.cpu.quantized_models import bert_layer
from unit.backends.other_types import array_in, in_type
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

node = helper.make_node
Arrays = dict[str, np.ndarray]
BOUND = 1e-12
"""Largest error over largest value: float32 would be a hundred thousand times as far off."""
FEW = ["resnet50", "bert_base", "lstm_tagger"]


def parsed(text: str) -> onnx.ModelProto:
    made: onnx.ModelProto = parser.parse_model(text)
    return made


def assert_exact(core: Core, model: Any, given: Arrays, device: str = "CPU", **config: Any) -> None:
    found = run(core, model, device, given, **config)
    wanted = run(core, model, "REFERENCE", given)
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert found[name].dtype == expected.dtype
        assert found[name].shape == expected.shape
        if expected.dtype.kind == "f":
            bound = BOUND * np.abs(expected).max(initial=0)
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=bound)
        else:
            np.testing.assert_array_equal(found[name], expected)


def in_float64(arrays: Arrays) -> Arrays:
    return {name: array_in(array, np.float64) for name, array in arrays.items()}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_networks_in_float64_keep_its_precision(core: Core, name: str, is_open: bool) -> None:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    lengths = (
        {dim: dim for dim in MODELS[name].dynamic} if is_open else {"batch": BATCH, **sequence}
    )
    model = in_type(SMALL[name](**lengths), np.float64)
    assert_exact(core, model, in_float64(inputs_of(name)))


def test_plans_of_new_lengths_are_exact_too(core: Core) -> None:
    model = in_type(bert_layer(length="n"), np.float64)
    random = np.random.default_rng(3)
    with (
        core.load_network(model, "CPU") as network,
        core.load_network(model, "REFERENCE") as reference,
    ):
        request, oracle = network.create_infer_request(), reference.create_infer_request()
        for length in (3, 5, 8, 8, 13):
            x = random.standard_normal((1, length, 32))
            found, wanted = (one.infer_sync({"x": x})["y"] for one in (request, oracle))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=BOUND * np.abs(wanted).max())


@pytest.mark.parametrize("config", [{}, {"INFERENCE_PRECISION_HINT": "bf16"}], ids=str)
def test_float32_and_float64_stand_side_by_side(core: Core, config: dict[str, Any]) -> None:
    """What is float32 between numbers of float64 is computed natively, and as precise as that."""
    x = np.random.default_rng(0).standard_normal((4, 8))
    weights = np.random.default_rng(1).standard_normal((8, 8))
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Cast", ["wide"], ["single"], to=TensorProto.FLOAT),
        node("Relu", ["single"], ["kept"]),
        node("Mul", ["kept", "half"], ["halved"]),
        node("Cast", ["halved"], ["again"], to=TensorProto.DOUBLE),
        node("Add", ["again", "wide"], ["y"]),
    ]
    constants = {"w": weights, "half": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": x}, ["y", "wide"], constants)
    found = run(core, model, "CPU", {"x": x}, **config)
    np.testing.assert_allclose(found["wide"], x @ weights, rtol=BOUND, atol=BOUND)
    rounded = np.maximum((x @ weights).astype(np.float32), 0) / 2
    bound = 3e-2 if config else 1e-6
    np.testing.assert_allclose(found["y"], rounded + x @ weights, rtol=bound, atol=bound)


INTEGERS = {
    "Add": (np.uint64, 2),
    "BitwiseAnd": (np.uint64, 2),
    "Div": (np.uint64, 2),
    "Greater": (np.uint64, 2),
    "MatMul": (np.int32, 2),
    "Max": (np.uint64, 3),
    "Mod": (np.uint64, 2),
    "ReduceMax": (np.uint64, 1),
    "Sign": (np.uint64, 1),
}


@pytest.mark.parametrize("op", sorted(INTEGERS))
def test_integers_that_no_kernel_has_are_exact(core: Core, op: str) -> None:
    dtype, count = INTEGERS[op]
    limits = np.iinfo(dtype)
    random = np.random.default_rng(0)
    given = {
        f"x{place}": random.integers(1, limits.max, (3, 3), dtype, endpoint=True)
        for place in range(count)
    }
    assert_exact(core, model_of([node(op, list(given), ["y"])], given, ["y"]), given)


def test_bodies_have_such_nodes_as_steps(core: Core) -> None:
    model = parsed(
        """<ir_version: 10, opset_import: ["": 21]>
        loop (double[2, 2] x, int64 n, bool go) => (double[2, 2] y, double[k, 2, 2] seen) {
            y, seen = Loop <body = step (int64 i, bool on, double[2, 2] v)
                => (bool still, double[2, 2] w, double[2, 2] out) {
                    still = Identity(on)
                    p = MatMul(v, v)
                    t = Tanh(p)
                    w = Add(t, x)
                    out = Softmax(w)
                }> (n, go, x)
        }"""
    )
    given = {
        "x": np.random.default_rng(0).standard_normal((2, 2)),
        "n": np.array(5),
        "go": np.array(True),
    }
    assert_exact(core, model, given)
    assert all(answer.supported for answer in core.query_network(model, "CPU").values())


def test_what_follows_sizes_of_data_is_exact(core: Core) -> None:
    model = parsed(
        """<ir_version: 10, opset_import: ["": 21]>
        chosen (double[n, 3] x, double[3, 4] w) => (double[k, 4] y) {
            zero = Constant <value = double {0}> ()
            first = Constant <value = int64[1] {0}> ()
            column = Gather <axis = 1> (x, first)
            flat = Flatten <axis = 0> (column)
            row = Squeeze(flat, first)
            wanted = Greater(row, zero)
            rows = Compress <axis = 0> (x, wanted)
            made = MatMul(rows, w)
            y = Sigmoid(made)
        }"""
    )
    random = np.random.default_rng(2)
    for count in (2, 7):
        given = {"x": random.standard_normal((count, 3)), "w": random.standard_normal((3, 4))}
        assert_exact(core, model, given)


@pytest.mark.parametrize("length", [6, "n"])
def test_an_import_computes_the_same(core: Core, length: int | str) -> None:
    model = in_type(bert_layer(length=length), np.float64)
    x = np.random.default_rng(0).standard_normal((1, 6, 32))
    with core.load_network(model, "CPU", {"EXPORTABLE": True}) as network:
        wanted = network.create_infer_request().infer_sync({"x": x})["y"]
        blob = network.export()
    with core.import_network(blob, "CPU") as again:
        found = again.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_profiles_and_queries_say_that_numpy_computes_them(core: Core) -> None:
    x = np.ones((2, 2))
    model = model_of([node("Relu", ["x"], ["r"]), node("Exp", ["r"], ["y"])], {"x": x}, ["y"])
    answers = core.query_network(model, "CPU").values()
    assert [answer.implementation for answer in answers] == ["numpy", "numpy"]
    with core.load_network(model, "CPU", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync({"x": x})
        steps = [step for step in request.profiling() if step.name != "outputs"]
        assert {step.implementation for step in steps} == {"numpy"}


def test_what_numpy_cannot_have_stays_refused_with_its_reason(core: Core) -> None:
    x = np.ones((2, 3))
    nodes = [node("RandomUniformLike", ["x"], ["d"]), node("Exp", ["d"], ["y"])]
    model = model_of(nodes, {"x": x}, ["y"])
    first, second = core.query_network(model, "CPU").values()
    assert (first.supported, second.supported) == (False, True)
    with pytest.raises(UnsupportedOpError, match="CPU has no kernel for RandomUniformLike"):
        core.load_network(model, "CPU")


@pytest.mark.parametrize("device", ["HETERO:CPU,REFERENCE", "AUTO:CPU,ONNXRUNTIME", "MULTI:CPU"])
def test_devices_that_are_made_of_cpu_have_them_too(core: Core, device: str) -> None:
    skip_if_missing(core, device.partition(":")[2].rpartition(",")[2])
    x = np.random.default_rng(0).standard_normal((3, 4))
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    weights = np.random.default_rng(1).standard_normal((4, 4))
    assert_exact(core, model_of(nodes, {"x": x}, ["y"], {"w": weights}), {"x": x}, device)
