"""Convolutions of stored numbers at the ends: of shapes, pads, groups and ranges."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from unit.backends.cpu.comparing import INTEGERS, assert_a_quantum_off, run_stored


class Case(NamedTuple):
    source: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    groups: int = 1
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


CASES = {
    "one place": Case((1, 16, 1, 1), (24, 16, 3, 3), pads=(1, 1, 1, 1)),
    "one row": Case((2, 5, 1, 40), (9, 5, 1, 1)),
    "odd channels": Case((1, 7, 9, 6), (21, 7, 3, 3), pads=(1, 1, 1, 1)),
    "squares": Case((2, 16, 13, 11), (21, 16, 3, 3), pads=(1, 1, 1, 1)),
    "squares with pads on one side": Case((1, 32, 12, 12), (16, 32, 3, 3), pads=(2, 0, 0, 2)),
    "windows in the pads": Case((1, 16, 10, 10), (16, 16, 3, 3), pads=(4, 5, 3, 4)),
    "windows of a product in the pads": Case((1, 3, 4, 5), (17, 3, 2, 3), pads=(3, 4, 3, 4)),
    "strides": Case((1, 16, 9, 9), (16, 16, 3, 3), strides=(2, 3), pads=(1, 1, 1, 1)),
    "dilations": Case((1, 16, 9, 9), (16, 16, 3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "a dilation wider than the map": Case(
        (1, 16, 4, 5), (24, 16, 3, 3), dilations=(6, 4), pads=(6, 4, 6, 4)
    ),
    "groups": Case((1, 24, 6, 6), (48, 8, 3, 3), groups=3, pads=(1, 1, 1, 1)),
    "depthwise": Case((2, 37, 7, 9), (37, 1, 3, 3), groups=37, pads=(1, 1, 1, 1)),
    "depthwise, dilated": Case(
        (1, 16, 8, 8), (16, 1, 5, 5), groups=16, dilations=(2, 1), pads=(4, 4, 4, 4)
    ),
    "depthwise, strided": Case(
        (2, 48, 9, 8), (48, 1, 3, 3), groups=48, strides=(2, 2), pads=(0, 1, 1, 1)
    ),
    "depthwise, many rows": Case((1, 32, 96, 90), (32, 1, 5, 5), groups=32, pads=(2, 2, 2, 2)),
    "many rows": Case((1, 16, 72, 72), (48, 16, 3, 3), pads=(1, 1, 1, 1)),
    "many rows of 7 bytes": Case((1, 7, 80, 80), (64, 7, 1, 1)),
}


def stored_convolution(
    case: Case, dtype: type, zero: int, weights: np.ndarray, *, is_open: bool = False
) -> bytes:
    """A model of a convolution of stored numbers, whose sums use the range of its uint8 result."""
    count = len(weights)
    spread = 74 * 74 * np.sqrt(weights[0].size) * 0.02 * 0.003
    constants = {
        **{"xs": np.float32(0.02), "xz": dtype(zero), "w": weights, "b": np.arange(count) * 11},
        **{
            "ws": np.linspace(0.002, 0.004, count, dtype=np.float32),
            "wz": np.zeros(count, np.int8),
        },
        **{"ys": np.float32(spread / 40), "yz": np.uint8(131)},
    }
    constants["bs"] = constants["ws"] * constants["xs"]
    constants["b"] = constants["b"].astype(np.int32)
    shapes = {
        **{"strides": case.strides, "dilations": case.dilations},
        **{"pads": case.pads, "group": case.groups},
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], **shapes),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    shape = ["n" if is_open else case.source[0], *case.source[1:]]
    graph = helper.make_graph(
        nodes,
        "stored convolution",
        [helper.make_tensor_value_info("x", INTEGERS[dtype], shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def weights_of(case: Case) -> np.ndarray:
    """Weights of the full range, of which some chunks fit 8 bits and some do not."""
    random = np.random.default_rng(3)
    made = np.rint(random.standard_normal(case.weights) * 45)
    return np.clip(made, -128, 127).astype(np.int8)


def data_of(case: Case, dtype: type, images: int | None = None) -> np.ndarray:
    limits = np.iinfo(dtype)
    shape = (case.source[0] if images is None else images, *case.source[1:])
    return np.random.default_rng(4).integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dtype", "zero"), [(np.uint8, 0), (np.uint8, 255), (np.int8, -128), (np.int8, 127)]
)
def test_results_are_those_of_the_nodes_on_any_number_of_threads(
    core: Core, name: str, dtype: type, zero: int
) -> None:
    case = CASES[name]
    model = stored_convolution(case, dtype, zero, weights_of(case))
    x = data_of(case, dtype)
    found = run_stored(core, model, x)
    assert_a_quantum_off(found, run_stored(core, model, x, "REFERENCE"))
    np.testing.assert_array_equal(run_stored(core, model, x, threads=2), found)


@pytest.mark.parametrize(
    "name", ["squares", "many rows of 7 bytes", "depthwise", "depthwise, strided", "groups"]
)
def test_what_is_exported_computes_the_same(core: Core, name: str) -> None:
    case = CASES[name]
    x, file = data_of(case, np.uint8), io.BytesIO()
    model = stored_convolution(case, np.uint8, 0, weights_of(case))
    with core.load_network(model, "CPU") as network:
        network.export(file)
    file.seek(0)
    with core.import_network(file, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_array_equal(found, run_stored(core, model, x))


@pytest.mark.parametrize("name", ["squares", "groups", "depthwise", "depthwise, strided"])
def test_any_batch_is_computed_as_its_images_are(core: Core, name: str) -> None:
    case = CASES[name]
    model = stored_convolution(case, np.uint8, 0, weights_of(case), is_open=True)
    x = data_of(case, np.uint8, 5)
    each = np.concatenate([run_stored(core, model, x[index : index + 1]) for index in range(5)])
    with core.load_network(model, "CPU", {"NUM_STREAMS": 2}) as network:
        requests = [network.create_infer_request() for _ in range(4)]
        for images in (5, 2, 3, 5):
            for request in requests:
                request.start_async({"x": x[:images]})
            for request in requests:
                assert request.wait()
                np.testing.assert_array_equal(request.results["y"], each[:images])


def test_pads_lie_as_what_they_are_put_around(core: Core) -> None:
    """Between convolutions channels lie innermost, and nothing is put into another order."""
    case = Case((1, 16, 9, 9), (16, 16, 3, 3), pads=(1, 1, 1, 1))
    first = onnx.load_from_string(stored_convolution(case, np.uint8, 131, weights_of(case)))
    second = onnx.load_from_string(stored_convolution(case, np.uint8, 131, weights_of(case)))
    del second.graph.input[:], first.graph.output[:]
    for item in (*second.graph.node, *second.graph.initializer):
        item.name = f"{item.name}_2"
    for node in second.graph.node:
        node.input[:] = ["y" if name == "x" else f"{name}_2" for name in node.input]
        node.output[:] = [f"{name}_2" for name in node.output]
    second.graph.output[0].name = "y_2"
    first.graph.node.extend(second.graph.node)
    first.graph.initializer.extend(second.graph.initializer)
    first.graph.output.extend(second.graph.output)
    with core.load_network(first.SerializeToString(), "CPU", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync({"x": data_of(case, np.uint8)})
        steps = [(item.op, item.implementation) for item in request.profiling()]
    if not any(op == "Pad" for op, _ in steps):
        pytest.skip("native kernels need no pads")
    products = [place for place, (_, done) in enumerate(steps) if "conv" in done]
    assert len(products) == 2, steps
    between = steps[products[0] + 1 : products[1]]
    assert {op for op, _ in between} == {"Pad"}, steps
