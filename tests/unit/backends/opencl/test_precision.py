"""Float16 between launches, which every device can load and store, so that it is tested on any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver
from aioinfer.runtime.accelerator.driver import DeviceFacts
from opencl_device import choose_device
from unit.runtime.accelerator.comparing import F16_BOUND, assert_close, model_of, operator, run

HALF = {"INFERENCE_PRECISION_HINT": "f16"}


class HalfDriver(PyOpenClDriver):
    """Says that its devices compute in float16."""

    def find_devices(self) -> list[DeviceFacts]:
        found = super().find_devices()
        return [replace(facts, extensions=facts.extensions | {"cl_khr_fp16"}) for facts in found]


@pytest.fixture(scope="module")
def half_core(core: Core) -> Iterator[Core]:
    with Core() as made:
        made.register_plugin("HALF", lambda handle, name: OpenClPlugin(handle, name, HalfDriver()))
        choose_device(made, "HALF")
        yield made


def test_values_are_held_in_float16_and_come_and_go_in_float32(half_core: Core) -> None:
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
    got = run(half_core, model, "HALF", inputs, **HALF)
    for name in wanted:
        assert_close(name, got[name], wanted[name], F16_BOUND)
    assert not np.array_equal(got["c"], wanted["c"])


def test_half_of_the_memory_is_taken_for_weights(half_core: Core) -> None:
    inputs = {"x": np.zeros((1, 64), np.float32)}
    model = model_of([operator("MatMul", "x", "w")], inputs, constants={"w": np.eye(64, dtype="f")})
    sizes = []
    for config in ({}, HALF):
        with half_core.load_network(model, "HALF", config) as network:
            sizes.append(network.get_metric("WEIGHTS_BYTES"))
    assert sizes == [64 * 64 * 4, 64 * 64 * 2]


def test_sums_of_float16_are_float32(half_core: Core) -> None:
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
    got = run(half_core, model, "HALF", inputs, **HALF)
    for name in wanted:
        assert_close(name, got[name], wanted[name], F16_BOUND)
