"""Transposed convolutions of stored numbers: computed in int8, and right to a quantum."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Node, TensorType, Value
from unit.backends.cpu.comparing import (
    INTEGERS,
    assert_a_quantum_off,
    run_stored,
    skip_without_int8,
)
from unit.backends.cpu.single_nodes import model_of_nodes, plan_of, run_plan, value_of


class Case(NamedTuple):
    """Shapes of data and weights (C, M, ...), and what else the node says."""

    source: tuple[int, ...]
    weights: tuple[int, ...]
    attributes: dict[str, Any]


CASES = {
    "one element": Case((2, 20, 1, 1), (20, 24, 4, 4), {}),
    "one element, cut": Case((1, 20, 1, 1), (20, 8, 5, 3), {"pads": [1, 0, 2, 1]}),
    "one row": Case((1, 12, 1, 5), (12, 9, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "overlapping": Case((1, 32, 5, 6), (32, 16, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "touching": Case((2, 16, 4, 3), (16, 21, 2, 2), {"strides": [2, 2]}),
    "an odd window": Case((1, 16, 5, 4), (16, 7, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "going on": Case(
        (1, 16, 5, 4),
        (16, 7, 3, 3),
        {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "a length that is told": Case(
        (1, 8, 5, 4), (8, 7, 4, 4), {"strides": [2, 2], "output_shape": [11, 7]}
    ),
    "as long as strides": Case(
        (1, 8, 3, 4), (8, 7, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}
    ),
    "no strides": Case((1, 16, 6, 6), (16, 16, 3, 3), {"pads": [1] * 4}),
    "no strides, dilated": Case((1, 16, 4, 5), (16, 9, 3, 3), {"dilations": [2, 3]}),
    "wide pads": Case((1, 16, 6, 5), (16, 9, 4, 4), {"strides": [2, 2], "pads": [4, 3, 3, 4]}),
    "unlike axes": Case((1, 16, 5, 4), (16, 9, 5, 3), {"strides": [3, 1], "pads": [2, 1, 1, 0]}),
    "three channels": Case((1, 32, 9, 9), (32, 3, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "many places": Case((1, 16, 40, 44), (16, 16, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "one axis": Case((2, 16, 9), (16, 24, 4), {"strides": [2], "pads": [1, 1]}),
    "wide strides": Case((1, 8, 3, 4), (8, 5, 8, 10), {"strides": [4, 5], "pads": [2, 3, 3, 2]}),
    "groups": Case((1, 16, 5, 4), (16, 8, 4, 4), {"strides": [2, 2], "group": 2}),
    "groups of odd columns": Case(
        (2, 9, 4, 5),
        (9, 5, 3, 3),
        {"strides": [2, 2], "group": 3, "pads": [1] * 4, "output_padding": [1, 0]},
    ),
    "groups, no strides": Case((1, 16, 6, 6), (16, 8, 3, 3), {"group": 2, "pads": [1] * 4}),
    "small groups, no strides": Case((1, 16, 6, 6), (16, 2, 3, 3), {"group": 8, "pads": [1] * 4}),
    "depthwise": Case(
        (2, 12, 5, 4), (12, 1, 4, 4), {"strides": [2, 2], "group": 12, "pads": [1] * 4}
    ),
    "depthwise, no strides": Case((1, 16, 6, 6), (16, 1, 3, 3), {"group": 16, "pads": [1] * 4}),
    "depthwise, many taps": Case((1, 16, 6, 6), (16, 1, 9, 9), {"group": 16, "pads": [4] * 4}),
    "one element in groups": Case((2, 12, 1, 1), (12, 3, 9, 9), {"group": 4}),
    "depthwise, one row": Case((1, 16, 1, 6), (16, 1, 1, 80), {"strides": [2, 1], "group": 16}),
    "three axes": Case((1, 8, 3, 2, 3), (8, 6, 4, 2, 3), {"strides": [2, 2, 1]}),
    "three axes in groups": Case(
        (1, 8, 3, 2, 3), (8, 3, 4, 2, 3), {"strides": [2, 2, 1], "group": 2, "pads": [1, 0, 1] * 2}
    ),
}


LESS_OFTEN = frozenset(
    {
        "three axes",
        "three axes in groups",
        "small groups, no strides",
        "depthwise, many taps",
        "one element in groups",
    }
)
"""Cases that CPU's native kernels, of processors without VNNI, do not take."""


@pytest.fixture(autouse=True)
def _needs_int8(core: Core) -> None:
    skip_without_int8(core)


def weights_of(case: Case, dtype: type = np.int8) -> np.ndarray:
    """Weights of the full range, of which some chunks fit 8 bits and some do not."""
    made = np.rint(np.random.default_rng(3).standard_normal(case.weights) * 45)
    made = np.clip(made, -128, 127)
    return (made + (128 if dtype is np.uint8 else 0)).astype(dtype)


def data_of(case: Case, dtype: type, images: int | None = None) -> np.ndarray:
    limits = np.iinfo(dtype)
    shape = (case.source[0] if images is None else images, *case.source[1:])
    return np.random.default_rng(4).integers(limits.min, limits.max + 1, shape).astype(dtype)


def model(
    case: Case,
    dtype: type = np.uint8,
    zero: int = 0,
    *,
    scale_count: int | None = None,
    weight_type: type = np.int8,
    has_bias: bool = True,
    behind: Sequence[Any] = (),
    is_stored: bool = True,
    is_open: bool = False,
) -> bytes:
    """A ConvTranspose of stored numbers; ``behind`` are nodes that make "c" of "t"."""
    groups = case.attributes.get("group", 1)
    count = case.weights[1] if scale_count is None else scale_count
    middle = 128 if weight_type is np.uint8 else 0
    spread = 74 * 74 * np.sqrt(np.prod(case.weights) / case.weights[1] / groups) * 0.02 * 0.003
    scales = np.linspace(0.002, 0.004, count, dtype=np.float32)
    constants = {
        **{"xs": np.float32(0.02), "xz": dtype(zero), "w": weights_of(case, weight_type)},
        **{"ws": scales if count > 1 else scales[0]},
        "wz": np.full(count if count > 1 else (), middle, weight_type),
        **{"b": (np.arange(case.weights[1] * groups) * 0.01).astype(np.float32)},
        **{"ys": np.float32(spread / 60), "yz": np.uint8(131)},
        "most": np.float32(spread),
    }
    made = "t" if behind else "c"
    inputs = ["xf", "wf", "b"] if has_bias else ["xf", "wf"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        helper.make_node("ConvTranspose", inputs, [made], **case.attributes),
        *behind,
    ]
    if is_stored:
        nodes.append(helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", ["c"], ["y"]))
    shape = ["n" if is_open else case.source[0], *case.source[1:]]
    result = TensorProto.UINT8 if is_stored else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "transposed",
        [helper.make_tensor_value_info("x", INTEGERS[dtype], shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def operators(core: Core, model: bytes) -> list[str]:
    with core.load_network(model, "CPU") as network:
        return [node.op_type for node in network.runtime_graph().nodes]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dtype", "zero"), [(np.uint8, 0), (np.uint8, 117), (np.int8, -128), (np.int8, 3)]
)
@pytest.mark.parametrize("scale_count", [None, 1])
def test_results_are_those_of_the_nodes_on_any_number_of_threads(
    core: Core, name: str, dtype: type, zero: int, scale_count: int | None
) -> None:
    case = CASES[name]
    given, x = model(case, dtype, zero, scale_count=scale_count), data_of(case, dtype)
    found = run_stored(core, given, x)
    assert_a_quantum_off(found, run_stored(core, given, x, "REFERENCE"))
    np.testing.assert_array_equal(run_stored(core, given, x, threads=2), found)


@pytest.mark.parametrize("name", [name for name in CASES if name not in LESS_OFTEN])
def test_all_of_it_is_one_int8_convolution(core: Core, name: str) -> None:
    found = operators(core, model(CASES[name]))
    assert "Int8Conv" in found
    assert not {"ConvTranspose", "DequantizeLinear", "QuantizeLinear"} & {*found}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_the_largest_sums_do_not_overflow(core: Core, dtype: type) -> None:
    """Two products of 255 and 127 are more than 16 bits hold."""
    case = Case((1, 64, 3, 3), (64, 16, 4, 4), {"strides": [2, 2], "pads": [1] * 4})
    ends = np.iinfo(dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "zero"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "one"], ["wf"]),
        helper.make_node("ConvTranspose", ["xf", "wf"], ["y"], **case.attributes),
    ]
    for weight, number in ((127, ends.max), (-128, ends.max), (127, ends.min), (-128, ends.min)):
        constants = {
            "one": np.float32(1),
            "zero": dtype(0),
            "w": np.full(case.weights, weight, np.int8),
        }
        graph = helper.make_graph(
            nodes,
            "largest",
            [helper.make_tensor_value_info("x", INTEGERS[dtype], case.source)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        x = np.full(case.source, number, dtype)
        given = bytes(made.SerializeToString())
        assert "Int8Conv" in operators(core, given)
        found, wanted = (run_stored(core, given, x, device) for device in ("CPU", "REFERENCE"))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_only_the_taps_of_a_phase_are_added_up(core: Core) -> None:
    """All of the window would be more than 32 bits hold."""
    case = Case((1, 256, 2, 2), (256, 3, 64, 64), {"strides": [32, 32], "pads": [16] * 4})
    assert np.abs(weights_of(case).astype(np.int64)).sum(axis=(0, 2, 3)).max() * 255 > 2**31
    given, x = model(case), data_of(case, np.uint8)
    assert "Int8Conv" in operators(core, given)
    assert_a_quantum_off(run_stored(core, given, x), run_stored(core, given, x, "REFERENCE"))


def test_a_phase_whose_sums_wrap_stays_in_float32(core: Core) -> None:
    case = Case((1, 60_000, 2, 2), (60_000, 1, 2, 2), {})
    given, x = model(case), data_of(case, np.uint8)
    assert np.abs(weights_of(case).astype(np.int64)).sum() * 255 > 2**31
    assert "Int8Conv" not in operators(core, given)
    assert_a_quantum_off(run_stored(core, given, x), run_stored(core, given, x, "REFERENCE"))


@pytest.mark.parametrize("has_bias", [False, True])
def test_activations_are_applied_before_phases_are_moved(core: Core, has_bias: bool) -> None:
    case = CASES["overlapping"]
    behind = [
        helper.make_node("LeakyRelu", ["t"], ["l"], alpha=0.25),
        helper.make_node("Sigmoid", ["l"], ["s"]),
        helper.make_node("Mul", ["s", "most"], ["c"]),
    ]
    given = model(case, has_bias=has_bias, behind=behind)
    x = data_of(case, np.uint8)
    found = operators(core, given)
    assert found.count("Int8Conv") == 1
    assert not {"Sigmoid", "LeakyRelu", "QuantizeLinear"} & {*found}
    assert_a_quantum_off(run_stored(core, given, x), run_stored(core, given, x, "REFERENCE"))


def test_a_residual_sum_behind_it_is_computed_with_phases_in_their_places(core: Core) -> None:
    """What is added does not lie as phases do."""
    case = Case((1, 8, 4, 4), (8, 8, 2, 2), {"strides": [2, 2]})
    proto = onnx.load_from_string(model(case))
    made = [
        helper.make_node("DequantizeLinear", ["y", "ys", "yz"], ["yf"]),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["rf"]),
        helper.make_node("Add", ["yf", "rf"], ["sf"]),
        helper.make_node("QuantizeLinear", ["sf", "ys", "yz"], ["z"]),
    ]
    proto.graph.node.extend(made)
    shape = [1, 8, 8, 8]
    proto.graph.input.append(helper.make_tensor_value_info("r", TensorProto.UINT8, shape))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.UINT8, None))
    x, r = data_of(case, np.uint8), np.random.default_rng(5).integers(0, 256, shape, np.uint8)
    found = {}
    for device in ("CPU", "REFERENCE"):
        with core.load_network(proto.SerializeToString(), device) as network:
            result = network.create_infer_request().infer_sync({"x": x, "r": r})
            found[device] = np.asarray(result["z"])
    assert_a_quantum_off(found["CPU"], found["REFERENCE"])


def test_results_that_are_not_stored_are_float32(core: Core) -> None:
    case = CASES["an odd window"]
    given, x = model(case, zero=9, is_stored=False), data_of(case, np.uint8)
    assert "Int8Conv" in operators(core, given)
    found, wanted = (run_stored(core, given, x, device) for device in ("CPU", "REFERENCE"))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_unsigned_weights_around_128_are_the_same(core: Core) -> None:
    """What fills windows up are zeros, and no 128 less."""
    case = CASES["an odd window"]
    given, x = model(case, weight_type=np.uint8), data_of(case, np.uint8)
    assert "Int8Conv" in operators(core, given)
    np.testing.assert_array_equal(run_stored(core, given, x), run_stored(core, model(case), x))


REFUSED = {
    "windows shorter than strides": Case((1, 16, 5, 4), (16, 8, 1, 1), {"strides": [2, 2]}),
    "dilated windows at strides": Case(
        (1, 16, 5, 4), (16, 8, 3, 3), {"strides": [2, 2], "dilations": [2, 2]}
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_worth_it_is_computed_in_float32(core: Core, name: str) -> None:
    """Weights are then folded, and not dequantised in each run."""
    case = REFUSED[name]
    given, x = model(case, scale_count=1), data_of(case, np.uint8)
    found = operators(core, given)
    assert found.count("ConvTranspose") == 1
    assert found.count("DequantizeLinear") <= 1
    assert_a_quantum_off(run_stored(core, given, x), run_stored(core, given, x, "REFERENCE"))


@pytest.mark.parametrize("name", ["overlapping", "one element", "one axis"])
def test_what_is_exported_computes_the_same(core: Core, name: str) -> None:
    case, file = CASES[name], io.BytesIO()
    given, x = model(case), data_of(case, np.uint8)
    with core.load_network(given, "CPU") as network:
        network.export(file)
    file.seek(0)
    with core.import_network(file, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_array_equal(found, run_stored(core, given, x))


@pytest.mark.parametrize("name", ["overlapping", "one element", "as long as strides"])
def test_any_batch_is_computed_as_its_images_are(core: Core, name: str) -> None:
    case = CASES[name]
    given, x = model(case, is_open=True), data_of(case, np.uint8, 5)
    each = np.concatenate([run_stored(core, given, x[index : index + 1]) for index in range(5)])
    with core.load_network(given, "CPU", {"NUM_STREAMS": 2}) as network:
        request = network.create_infer_request()
        for images in (5, 2, 3, 4, 5):
            found = request.infer_sync({"x": x[:images]})["y"]
            np.testing.assert_array_equal(found, each[:images])


@pytest.mark.parametrize(
    ("phases", "cut", "shape"),
    [
        ([2, 2], [0, 0], (1, 3, 9, 8)),
        ([2, 2], [1, 0], (1, 3, 8, 8)),
        ([2, 2], [-1, 0], (1, 3, 8, 8)),
        ([2, 1], [0, 0], (1, 3, 8, 4)),
        ([2], [0], (1, 3, 8, 8)),
        ([0, 2], [0, 0], (1, 3, 8, 8)),
        ([2, 2], [0, 0], (2, 3, 8, 8)),
        ([-2, -2], [0, 0], (1, 3, 8, 8)),
    ],
)
def test_phases_that_are_not_there_are_refused(
    phases: list[int], cut: list[int], shape: tuple[int, ...]
) -> None:
    source = np.arange(12 * 16, dtype=np.uint8).reshape(1, 12, 4, 4)
    with pytest.raises(GraphError):
        shuffled(source, phases, cut, shape)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_phases_are_moved_in_any_type(dtype: type) -> None:
    source = np.arange(12 * 16).reshape(1, 12, 4, 4).astype(dtype)
    found = shuffled(source, [2, 2], [1, 0], (1, 3, 6, 7))
    whole = source.reshape(1, 2, 2, 3, 4, 4).transpose(0, 3, 4, 1, 5, 2).reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(found, whole[:, :, 1:7, :7])


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_phases_are_moved_wherever_they_are_cut(size: int, blocks: int, groups: int) -> None:
    shape = (1, groups * size * 2, blocks, 3)
    source = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    whole = source.reshape(groups, size, 2, blocks, 3).transpose(0, 2, 3, 1, 4)
    whole = whole.reshape(1, groups * 2, blocks * size, 3)
    for cut in range(blocks * size):
        for made in range(1, blocks * size - cut + 1):
            wanted = (1, groups * 2, made, 3)
            found = shuffled(source, [size, 1], [cut, 0], wanted, groups)
            np.testing.assert_array_equal(found, whole[:, :, cut : cut + made])


@pytest.mark.parametrize(
    ("stride", "cut", "copies"), [(32, 0, 1), (32, 16, 9), (4, 2, 9), (2, 1, 4)]
)
def test_steps_do_not_grow_with_the_strides(stride: int, cut: int, copies: int) -> None:
    shape = (1, 3 * stride**2, 4, 4)
    source = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    made = 4 * stride - 2 * cut
    plan = shuffle_plan(source, [stride] * 2, [cut] * 2, (1, 3, made, made))
    first, *moves = (step.implementation for step in plan.steps)
    assert first == "native:copy"  # channels become the last axis
    assert moves == ["native:copy"] * copies
    (found,) = run_plan(plan, [source])
    whole = source.reshape(1, stride, stride, 3, 4, 4).transpose(0, 3, 4, 1, 5, 2)
    whole = whole.reshape(1, 3, 4 * stride, 4 * stride)
    np.testing.assert_array_equal(found, whole[:, :, cut : cut + made, cut : cut + made])


@pytest.mark.parametrize("groups", [0, -1, 2])
def test_groups_that_are_not_there_are_refused(groups: int) -> None:
    source = np.arange(12 * 16, dtype=np.uint8).reshape(1, 12, 4, 4)
    with pytest.raises(GraphError, match="is not made by"):
        shuffled(source, [2, 2], [0, 0], (1, 3, 8, 8), groups)


def shuffled(
    source: np.ndarray,
    phases: list[int],
    cut: list[int],
    shape: tuple[int, ...],
    groups: int = 1,
) -> np.ndarray:
    (found,) = run_plan(shuffle_plan(source, phases, cut, shape, groups), [source])
    return found


def shuffle_plan(
    source: np.ndarray,
    phases: list[int],
    cut: list[int],
    shape: tuple[int, ...],
    groups: int = 1,
) -> Plan:
    given = value_of("x", source)
    result = Value("y", TensorType(given.type.dtype, shape))
    places = {"phases": phases, "cut": cut, "group": groups}
    node = Node("PixelShuffle", (given,), (result,), places, name="s", domain=CPU_DOMAIN)
    return plan_of(model_of_nodes([node], [given], [result]))
