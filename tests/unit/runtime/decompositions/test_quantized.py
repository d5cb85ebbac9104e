"""onnxruntime's operators on stored numbers, on devices that know ONNX's alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import AioInferError
from unit.runtime.decompositions.contrib_models import (
    Arrays,
    by_onnxruntime,
    contrib_model,
    on_device,
)

RANDOM = np.random.default_rng(5)
DEVICES = ["REFERENCE", "CPU", "HETERO:CPU,REFERENCE", "HETERO:REFERENCE,ONNXRUNTIME"]


class Case(NamedTuple):
    op_type: str
    operands: list[str]
    given: Arrays
    constants: Arrays
    result: Any = np.uint8
    attributes: dict[str, Any] = {}

    def model(self) -> bytes:
        return contrib_model(
            self.op_type,
            self.operands,
            self.given,
            self.constants,
            self.result,
            **self.attributes,
        )


def stored(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RANDOM.integers(low, high + 1, shape).astype(dtype)


def numbers(**scales_and_points: Any) -> Arrays:
    return {
        name: np.asarray(item, item.dtype if isinstance(item, np.ndarray) else np.float32)
        for name, item in scales_and_points.items()
    }


def unary(op_type: str, x: np.ndarray, y_scale: float, y_zero: int, **attributes: Any) -> Case:
    kind = x.dtype.type
    constants = numbers(xs=0.03, ys=y_scale, xz=np.array(7, kind), yz=np.array(y_zero, kind))
    operands = ["x", "xs", "xz", "ys", "yz"]
    return Case(op_type, operands, {"x": x}, constants, kind, attributes)


def binary(op_type: str, a: np.ndarray, b: np.ndarray, **attributes: Any) -> Case:
    kind = a.dtype.type
    points = {name: np.array(item, kind) for name, item in (("az", 3), ("bz", 9), ("cz", 40))}
    constants = numbers(as_=0.02, bs=0.05, cs=0.07, **points)
    operands = ["a", "as_", "az", "b", "bs", "bz", "cs", "cz"]
    return Case(op_type, operands, {"a": a, "b": b}, constants, kind, attributes)


def gemm(weights: np.ndarray, scales: Any, *, stores: bool = True, **attributes: Any) -> Case:
    turned = attributes.get("transB", 0)
    count = weights.shape[0 if turned else 1]
    kind = weights.dtype.type
    constants = {
        **numbers(xs=0.03, ws=np.asarray(scales, np.float32), ys=0.9),
        "xz": np.array(120, np.uint8),
        "w": weights,
        "wz": np.zeros(np.shape(scales), kind),
        "b": RANDOM.integers(-500, 500, count).astype(np.int32),
        "yz": np.array(100, np.uint8),
    }
    operands = ["x", "xs", "xz", "w", "ws", "wz", "b", *(["ys", "yz"] if stores else [])]
    return Case(
        "QGemm",
        operands,
        {"x": stored(6, weights.shape[1 if turned else 0])},
        {name: constants[name] for name in operands if name in constants},
        np.uint8 if stores else np.float32,
        attributes,
    )


def dynamic(op_type: str, scales: Any, *, has_bias: bool = True, zero: int | None = None) -> Case:
    x = RANDOM.normal(size=(2, 5, 24)).astype(np.float32)
    constants: dict[str, np.ndarray] = {
        "w": stored(24, 16, dtype=np.int8),
        "ws": np.asarray(scales, np.float32),
        "b": RANDOM.normal(size=16).astype(np.float32),
    }
    point = ""
    if zero is not None:
        point, constants["wz"] = "wz", np.full(np.shape(scales), zero, np.int8)
    if op_type == "DynamicQuantizeMatMul":
        operands, given = ["x", "w", "ws", point, "b"], {"x": x}
    else:
        constants |= {"xs": np.float32(0.02).reshape(()), "xz": np.array(9, np.uint8)}
        operands = ["x", "w", "xs", "ws", "xz", point, "b"]
        given = {"x": stored(2, 5, 24)}
    if not has_bias:
        operands = operands[:-1]
        del constants["b"]
    return Case(op_type, operands, given, constants, np.float32)


def concat() -> Case:
    constants = numbers(ys=0.05, as_=0.05, bs=0.02)
    points = {name: np.array(item, np.uint8) for name, item in (("yz", 9), ("az", 9), ("bz", 1))}
    operands = ["ys", "yz", "a", "as_", "az", "b", "bs", "bz"]
    given = {"a": stored(2, 3), "b": stored(2, 4)}
    return Case("QLinearConcat", operands, given, {**constants, **points}, np.uint8, {"axis": 1})


def where() -> Case:
    case = binary("QLinearWhere", stored(2, 3), stored(2, 3))
    given = {"c": np.array([[True, False, True]]), **case.given}
    return case._replace(operands=["c", *case.operands], given=given)


IMAGE = stored(2, 3, 6, 6)
POOL = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}
COLUMNS = np.linspace(0.01, 0.05, 16)
CASES = {
    "sum": binary("QLinearAdd", stored(2, 3, 4), stored(2, 3, 4)),
    "sum of int8, spread": binary(
        "QLinearAdd", stored(2, 3, 4, dtype=np.int8), stored(4, dtype=np.int8)
    ),
    "product": binary("QLinearMul", stored(2, 1), stored(2, 5)),
    "sigmoid": unary("QLinearSigmoid", stored(40), 1 / 256, 0),
    "leaky relu": unary("QLinearLeakyRelu", stored(40, dtype=np.int8), 0.03, -9, alpha=0.2),
    "softmax": unary("QLinearSoftmax", stored(3, 2, 8), 1 / 256, 0, axis=-1, opset=13),
    "softmax over the middle": unary("QLinearSoftmax", IMAGE, 1 / 256, 0, axis=1, opset=13),
    "softmax over the rest": unary("QLinearSoftmax", IMAGE, 1 / 256, 0, axis=1, opset=11),
    "global pool": unary("QLinearGlobalAveragePool", IMAGE, 0.02, 3, channels_last=0),
    "pool, channels last": unary("QLinearGlobalAveragePool", IMAGE, 0.02, 3, channels_last=1),
    "pool": unary("QLinearAveragePool", IMAGE, 0.02, 3, **POOL),
    "concat": concat(),
    "where": where(),
    "gemm": gemm(stored(8, 16, dtype=np.int8), 0.01, transB=0),
    "gemm, turned, by channel": gemm(stored(16, 8, dtype=np.int8), COLUMNS, transB=1),
    "gemm, scaled, real": gemm(stored(8, 16, dtype=np.int8), 0.01, stores=False, alpha=0.5),
    "integer product": dynamic("MatMulIntegerToFloat", COLUMNS),
    "integer product without more": dynamic("MatMulIntegerToFloat", 0.01, has_bias=False),
    "dynamic product": dynamic("DynamicQuantizeMatMul", 0.01),
    "dynamic product by column": dynamic("DynamicQuantizeMatMul", COLUMNS, has_bias=False),
    "dynamic product, uneven": dynamic("DynamicQuantizeMatMul", COLUMNS, zero=3),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(core: aioinfer.Core, name: str, device: str) -> None:
    case = CASES[name]
    wanted = by_onnxruntime(case.model(), case.given)
    found = on_device(core, case.model(), device, case.given)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    else:
        assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("op_type", ["QLinearGlobalAveragePool", "QLinearAveragePool"])
def test_means_between_two_stored_numbers_are_the_same_everywhere(
    core: aioinfer.Core, op_type: str, channels_last: int
) -> None:
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]} if "Global" not in op_type else {}
    x = stored(8, 12, 12, 12)
    case = unary(op_type, x, 0.02, 3, channels_last=channels_last, **window)
    wanted = on_device(core, case.model(), "REFERENCE", case.given)
    np.testing.assert_array_equal(on_device(core, case.model(), "CPU", case.given), wanted)
    assert np.abs(by_onnxruntime(case.model(), case.given).astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("name", CASES)
def test_types_are_known_before_a_device_is(core: aioinfer.Core, name: str) -> None:
    case = CASES[name]
    wanted = by_onnxruntime(case.model(), case.given)
    model = core.read_model(case.model())
    (made,) = model.node("node").outputs
    assert str(made.type) == f"{wanted.dtype.name}[{','.join(map(str, wanted.shape))}]"


def test_onnxruntime_keeps_its_own_operators(core: aioinfer.Core) -> None:
    with core.load_network(CASES["sum"].model(), "ONNXRUNTIME") as network:
        assert "com.microsoft::QLinearAdd" in [node.op for node in network.runtime_graph().nodes]


def test_each_device_answers_for_the_nodes_of_the_file(core: aioinfer.Core) -> None:
    model = CASES["sum"].model()
    for device in ("CPU", "REFERENCE", "ONNXRUNTIME"):
        answers = core.query_network(model, device)
        assert answers["node"].supported, device


def test_a_users_kernel_goes_before(core: aioinfer.Core) -> None:
    def ones(*inputs: np.ndarray) -> np.ndarray:
        return np.ones_like(inputs[0])

    case = CASES["sum"]
    for device in ("REFERENCE", "CPU"):
        kernel = aioinfer.Extension(
            "QLinearAdd", ones, "com.microsoft", lambda types, _: [types[0]]
        )
        core.add_extension(kernel, device)
        assert (on_device(core, case.model(), device, case.given) == 1).all()


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
def test_what_is_not_given_is_refused_with_the_nodes_name(core: aioinfer.Core, device: str) -> None:
    case = CASES["sum"]
    short = case._replace(operands=case.operands[:4], constants=dict(case.constants))
    with pytest.raises(AioInferError, match=r"com\.microsoft::QLinearAdd.*'node'"):
        core.load_network(short.model(), device)


def test_lengths_that_contradict_each_other_are_refused(core: aioinfer.Core) -> None:
    case = binary("QLinearAdd", stored(2, 3), stored(2, 4))
    with pytest.raises(AioInferError, match=r"com\.microsoft::QLinearAdd \(node 'node'\)"):
        core.load_network(case.model(), "CPU")
