"""Pools of maps with channels last: against REFERENCE, and compiled for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.plugin import PRECISIONS
from aioinfer.backends.cuda.kernels.global_pooling import group_shape
from exhaustive import all_but
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.compiling import ARCHITECTURES, find_refused, nvrtc_or_skip
from unit.backends.cuda.kernels.plans import labels_of, plan_of

BOUNDS = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 2, 0]}
POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "max": ("MaxPool", {**WINDOW, "dilations": [1, 2]}),
    "max with a last window beyond the end": ("MaxPool", {**WINDOW, "ceil_mode": 1}),
    "max as large as before": ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    "average": ("AveragePool", {**WINDOW, "ceil_mode": 1}),
    "average of its padding, too": (
        "AveragePool",
        {**WINDOW, "ceil_mode": 1, "count_include_pad": 1, "dilations": [2, 1]},
    ),
    "mean": ("GlobalAveragePool", {}),
    "greatest": ("GlobalMaxPool", {}),
}


CHANNELS = (7, 8)
"""One that fills words of eight bytes, and one that does not."""


def model_with(
    pool: str, channels: Sequence[int] = CHANNELS, shape: tuple[int, ...] = (2, 5, 9, 8)
) -> tuple[Any, dict[str, Any]]:
    """Make pools of convolutions' results, which have so many channels."""
    chance = np.random.default_rng(7)
    inputs = {"x": chance.standard_normal(shape).astype(np.float32)}
    op_type, attributes = POOLS[pool]
    if len(shape) == 3:
        attributes = {
            key: item[: len(item) // 2] if isinstance(item, list) else item
            for key, item in attributes.items()
        }
    nodes, constants = [], {}
    for count in channels:
        size = (count, shape[1], *[1] * (len(shape) - 2))
        constants[f"w{count}"] = chance.standard_normal(size).astype(np.float32)
        nodes.append(operator("Conv", "x", f"w{count}", outputs=[f"c{count}"]))
        nodes.append(operator(op_type, f"c{count}", outputs=[f"y{count}"], **attributes))
        nodes[-2].name, nodes[-1].name = f"conv{count}", f"pool{count}"
    return model_of(nodes, inputs, [f"y{count}" for count in channels], constants), inputs


@pytest.mark.parametrize("hint", all_but(["f32"], BOUNDS))
@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_gives_what_reference_gives(stand_in_core: Core, pool: str, hint: str) -> None:
    model, inputs = model_with(pool)
    config = {"INFERENCE_PRECISION_HINT": hint}
    assert_same_on("STANDIN", stand_in_core, model, inputs, bound=BOUNDS[hint], **config)


@pytest.mark.parametrize("pool", all_but(["average"], POOLS))
def test_a_pool_of_one_axis_of_places(stand_in_core: Core, pool: str) -> None:
    model, inputs = model_with(pool, shape=(2, 4, 11))
    assert_same_on("STANDIN", stand_in_core, model, inputs)


@pytest.mark.parametrize(
    ("blocks", "pixels", "most", "shape"),
    [
        (512, 49, 1024, (32, 8)),
        (8, 12544, 1024, (8, 64)),
        (4, 1, 1024, (4, 1)),
        (1, 100_000, 256, (1, 256)),
        (33, 7, 64, (32, 1)),
        (5, 16, 64, (8, 4)),
    ],
)
def test_a_group_stands_over_channels_and_then_over_places(
    blocks: int, pixels: int, most: int, shape: tuple[int, int]
) -> None:
    assert group_shape(blocks, pixels, most) == shape


@pytest.mark.parametrize("channels", all_but([150], [1, 6, 150]))
@pytest.mark.parametrize("pool", ["mean", "greatest"])
def test_a_pool_of_many_places(stand_in_core: Core, pool: str, channels: int) -> None:
    model, inputs = model_with(pool, (channels,), (2, 3, 25, 13))
    assert_same_on("STANDIN", stand_in_core, model, inputs)


def test_nan_wins_in_a_maximum(stand_in_core: Core) -> None:
    model, inputs = model_with("max")
    inputs["x"][0, :, 3, 3] = np.nan
    assert_same_on("STANDIN", stand_in_core, model, inputs)
    model, inputs = model_with("greatest", (4,))
    inputs["x"][1, :, 3, 3] = np.nan
    assert_same_on("STANDIN", stand_in_core, model, inputs)


def test_a_pool_behind_a_convolution_keeps_its_channels_last() -> None:
    model, inputs = model_with("max", (8,))
    assert labels_of(plan_of(model, inputs)) == ["to_last", "CONV", "pool_last", "transpose"]


@pytest.mark.exhaustive
def test_kernels_of_maps_with_channels_last_compile() -> None:
    nvrtc_or_skip()
    chance = np.random.default_rng(1)
    found: dict[str, KernelSource] = {}
    constants = {"w": chance.standard_normal((8, 1, 3, 3)).astype(np.float32)}
    nodes = [operator("Conv", "x", "w", outputs=["c"], group=8), operator("HardSwish", "c")]
    inputs = {"x": np.zeros((1, 8, 9, 9), np.float32)}
    models = [model_with(pool) for pool in POOLS]
    for model, given in [*models, (model_of(nodes, inputs, constants=constants), inputs)]:
        for precision in PRECISIONS.values():
            launches = plan_of(model, given, precision=precision).launches
            sources = [launch.source for launch in launches]
            found.update((item.name, item) for item in sources if isinstance(item, KernelSource))
    assert {item.label for item in found.values()} >= {
        *("to_last", "pool_last", "global_pool_last", "conv_last")
    }
    for architecture in ARCHITECTURES:
        assert find_refused(list(found.values()), architecture) == {}
