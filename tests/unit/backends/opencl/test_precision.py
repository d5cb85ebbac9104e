"""Small floats between launches, which every device can load and store: tested on any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import DeviceFacts
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.runtime.graph import DType
from exhaustive import all_but
from opencl_device import choose_device
from quick_builds import QuickDriver
from unit.backends.accelerator.comparing import (
    BF16_BOUND,
    F16_BOUND,
    assert_close,
    model_of,
    operator,
    run,
)
from unit.benchmarks.small_networks import BATCH, inputs_of
from unit.benchmarks.small_networks import SMALL as NETWORKS

SMALL = [("f16", F16_BOUND), ("bf16", BF16_BOUND)]
TRANSFORMERS = ["bert_base", "minilm_l6", "vit_small", "gpt2_like"]
BFLOAT16 = DType.BFLOAT16.numpy
QUIET_BIT = 0x0040


class HalfDriver(QuickDriver):
    """Says that its devices compute in float16."""

    def find_devices(self) -> list[DeviceFacts]:
        found = super().find_devices()
        return [replace(facts, has_float16=True) for facts in found]


@pytest.fixture(scope="module")
def half_core(core: Core) -> Iterator[Core]:
    with Core() as made:
        made.register_plugin("HALF", lambda handle, name: OpenClPlugin(handle, name, HalfDriver()))
        choose_device(made, "HALF")
        yield made


def bfloat16_of(bits: Any) -> np.ndarray:
    return np.asarray(bits, np.uint16).view(BFLOAT16)


@pytest.mark.parametrize(("hint", "bound"), SMALL)
def test_values_are_held_in_a_small_type_and_come_and_go_in_float32(
    hint: str, bound: float, half_core: Core
) -> None:
    random = np.random.default_rng(2)
    inputs = {"x": random.standard_normal((2, 3, 9, 9)).astype(np.float32)}
    constants = {"w": random.standard_normal((8, 3, 3, 3)).astype(np.float32)}
    nodes = [
        operator("Conv", "x", "w", outputs=["c"]),
        operator("Relu", "c", outputs=["r"]),
        operator("Flatten", "r", outputs=["f"]),
        operator("Softmax", "f"),
    ]
    model = model_of(nodes, inputs, ("y", "c"), constants)
    wanted = run(half_core, model, "REFERENCE", inputs)
    got = run(half_core, model, "HALF", inputs, INFERENCE_PRECISION_HINT=hint)
    for name in wanted:
        assert_close(name, got[name], wanted[name], bound)
    assert not np.array_equal(got["c"], wanted["c"])


@pytest.mark.parametrize("hint", ["f16", "bf16"])
def test_half_of_the_memory_is_taken_for_weights(hint: str, half_core: Core) -> None:
    inputs = {"x": np.zeros((1, 64), np.float32)}
    model = model_of([operator("MatMul", "x", "w")], inputs, constants={"w": np.eye(64, dtype="f")})
    sizes = []
    for config in ({}, {"INFERENCE_PRECISION_HINT": hint}):
        with half_core.load_network(model, "HALF", config) as network:
            sizes.append(network.get_metric("WEIGHTS_BYTES"))
    assert sizes == [64 * 64 * 4, 64 * 64 * 2]


@pytest.mark.parametrize(("hint", "bound"), SMALL)
def test_sums_of_small_floats_are_float32(hint: str, bound: float, half_core: Core) -> None:
    random = np.random.default_rng(3)
    inputs = {"x": random.standard_normal((1, 8, 48, 48)).astype(np.float32) + np.float32(4)}
    constants = {
        "w": random.standard_normal((8, 4, 2, 2)).astype(np.float32),
        "g": random.standard_normal(48).astype(np.float32),
        "a": np.array([3]),
    }
    nodes = [
        operator("GlobalAveragePool", "x", outputs=["mean"]),
        operator("AveragePool", "x", outputs=["pool"], kernel_shape=[9, 9], strides=[9, 9]),
        operator("ReduceL1", "x", "a", outputs=["norm"]),
        operator("LayerNormalization", "x", "g", outputs=["rows"]),
        operator("ConvTranspose", "x", "w", outputs=["spread"], group=2, strides=[2, 2]),
    ]
    outputs = ("mean", "pool", "norm", "rows", "spread")
    model = model_of(nodes, inputs, outputs, constants)
    wanted = run(half_core, model, "REFERENCE", inputs)
    got = run(half_core, model, "HALF", inputs, INFERENCE_PRECISION_HINT=hint)
    for name in wanted:
        assert_close(name, got[name], wanted[name], bound)


def test_bfloat16_is_what_every_device_can_hold(core: Core) -> None:
    assert "BF16" in core.get_metric("OPENCL", "OPTIMIZATION_CAPABILITIES")
    inputs = {"x": np.float32([[1.00390625, 3.0, -1e38]])}  # the first is between two bfloat16
    model = model_of([operator("Neg", "x", outputs=["n"]), operator("Transpose", "n")], inputs)
    (got,) = run(core, model, "OPENCL", inputs, INFERENCE_PRECISION_HINT="bf16").values()
    wanted = -inputs["x"].astype(BFLOAT16).astype(np.float32).T
    np.testing.assert_array_equal(got, wanted)
    assert got[0, 0] == -1


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        ([0, 1 << 31], [0, 0x8000]),
        ([0x3F800001, 0x3F807FFF, 0x3F808001], [0x3F80, 0x3F80, 0x3F81]),
        ([0x3F808000, 0x3F818000, 0xBF818000], [0x3F80, 0x3F82, 0xBF82]),
        ([0x7F7F7FFF, 0x7F7F8000, 0xFF7FFFFF], [0x7F7F, 0x7F80, 0xFF80]),
        ([0x7F800000, 0xFF800000], [0x7F80, 0xFF80]),
    ],
    ids=["zeros", "to the nearest", "to even on a tie", "beyond the largest", "infinities"],
)
def test_bfloat16_is_rounded_as_numpys_is(bits: list[int], rounded: list[int], core: Core) -> None:
    x = np.array(bits, np.uint32).view(np.float32)
    model = model_of([operator("Cast", "x", to=DType.BFLOAT16.value)], {"x": x})
    got = run(core, model, "OPENCL", {"x": x})["y"]
    assert got.dtype == BFLOAT16
    assert got.view(np.uint16).tolist() == x.astype(BFLOAT16).view(np.uint16).tolist() == rounded


def test_every_nan_stays_one_in_bfloat16(core: Core) -> None:
    signs = np.array([[0x7F800000], [0xFF800000]], np.uint32)
    x = (signs + np.array([1, 0x7FFF, 0x8000, 0x3FFFFF, 0x400000, 0x7FFFFF], np.uint32)).view("f4")
    model = model_of([operator("Cast", "x", to=DType.BFLOAT16.value)], {"x": x})
    got = run(core, model, "OPENCL", {"x": x})["y"].view(np.uint16)
    assert (got & QUIET_BIT).all()
    assert (got & 0x7F80 == 0x7F80).all()
    assert (got >> 15).tolist() == [[0] * 6, [1] * 6]


def test_every_bfloat16_is_read_exactly(core: Core) -> None:
    x = bfloat16_of(np.arange(1 << 16))
    model = model_of([operator("Cast", "x", to=DType.FLOAT32.value)], {"x": x})
    got = run(core, model, "OPENCL", {"x": x})["y"]
    assert (got.view(np.uint32) == x.view(np.uint16).astype(np.uint32) << 16).all()


def test_a_model_of_bfloat16_runs(core: Core) -> None:
    """Weights, inputs and outputs are bfloat16, and so is what is fused."""
    random = np.random.default_rng(4)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(BFLOAT16)

    inputs = {"x": drawn(2, 3, 9, 9)}
    constants = {"w": drawn(8, 3, 3, 3), "b": drawn(8), "m": drawn(392, 10), "g": drawn(10)}
    nodes = [
        operator("Conv", "x", "w", "b", outputs=["c"]),
        operator("Sigmoid", "c", outputs=["s"]),
        operator("Mul", "c", "s", outputs=["r"]),
        operator("Flatten", "r", outputs=["f"]),
        operator("MatMul", "f", "m", outputs=["p"]),
        operator("Add", "p", "g", outputs=["q"]),
        operator("Softmax", "q"),
    ]
    model = model_of(nodes, inputs, ("y", "r"), constants)
    wanted = run(core, model, "REFERENCE", inputs)
    got = run(core, model, "OPENCL", inputs)
    for name in wanted:
        assert got[name].dtype == BFLOAT16
        assert_close(name, got[name], wanted[name], BF16_BOUND)


def test_a_cast_to_bfloat16_rounds_between_two_steps(core: Core) -> None:
    x = np.float32([1.00390625, 1.005859375])
    nodes = [
        operator("Cast", "x", outputs=["small"], to=DType.BFLOAT16.value),
        operator("Cast", "small", outputs=["wide"], to=DType.FLOAT32.value),
        operator("Sub", "x", "wide"),
    ]
    got = run(core, model_of(nodes, {"x": x}), "OPENCL", {"x": x})["y"]
    np.testing.assert_array_equal(got, x - np.float32([1, 1.0078125]))


@pytest.mark.parametrize("name", all_but([], TRANSFORMERS))
def test_a_transformer_gives_what_reference_gives(name: str, half_core: Core) -> None:
    inputs = inputs_of(name)
    tokens = {} if name == "vit_small" else {"sequence": inputs["input_ids"].shape[1]}
    model = NETWORKS[name](batch=BATCH, **tokens)
    wanted = run(half_core, model, "REFERENCE", inputs)
    for hint, bound in (("f32", 1e-3), ("f16", 2e-2)):
        found = run(half_core, model, "HALF", inputs, INFERENCE_PRECISION_HINT=hint)
        for key, expected in wanted.items():
            assert_close(f"{key} {hint}", found[key], expected, bound)
