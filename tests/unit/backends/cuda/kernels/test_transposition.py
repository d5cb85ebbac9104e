"""Transpose through local memory: which are, and what they give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.cuda.kernels.transposition import matrices_of
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.compiling import ARCHITECTURES, find_refused, nvrtc_or_skip
from unit.backends.cuda.kernels.plans import labels_of, plan_of


@pytest.mark.parametrize(
    ("shape", "order", "matrices"),
    [
        ((9, 10), (1, 0), (1, 9, 10)),
        ((2, 16, 5, 7), (0, 2, 3, 1), (2, 16, 35)),
        ((2, 5, 7, 16), (0, 3, 1, 2), (2, 35, 16)),
        ((2, 3, 8, 9), (0, 1, 3, 2), (6, 8, 9)),
        ((8, 1, 9), (2, 1, 0), (1, 8, 9)),
        ((3, 8, 8, 8), (2, 3, 0, 1), (1, 24, 64)),
        ((2, 9, 9, 8), (0, 2, 1, 3), None),
        ((9, 9, 9), (2, 1, 0), None),
        ((2, 3, 50, 50), (0, 2, 3, 1), None),
        ((9, 9), (0, 1), None),
        ((9, 0), (1, 0), None),
        ((), (), None),
    ],
)
def test_a_transpose_of_matrices_is_found(
    shape: tuple[int, ...], order: tuple[int, ...], matrices: tuple[int, int, int] | None
) -> None:
    assert matrices_of(shape, order) == matrices
    if matrices is not None:
        array = np.arange(math.prod(shape))
        turned = array.reshape(matrices).swapaxes(1, 2).reshape(-1)
        np.testing.assert_array_equal(turned, array.reshape(shape).transpose(order).reshape(-1))


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64"])
@pytest.mark.parametrize("shape", [(3, 32, 64), (2, 33, 31), (1, 8, 100), (5, 65, 9)])
def test_matrices_of_any_size_and_type(
    stand_in_core: Core, shape: tuple[int, ...], dtype: str
) -> None:
    inputs = {"x": np.random.default_rng(1).integers(0, 99, shape).astype(dtype)}
    model = model_of([operator("Transpose", "x", perm=[0, 2, 1])], inputs)
    assert labels_of(plan_of(model, inputs)) == ["transpose"]
    assert_same_on("STANDIN", stand_in_core, model, inputs)


def test_maps_with_many_channels_are_turned_through_local_memory() -> None:
    chance = np.random.default_rng(2)
    inputs = {"x": chance.standard_normal((2, 8, 9, 9)).astype(np.float32)}
    constants = {"w": chance.standard_normal((16, 8, 3, 3)).astype(np.float32)}
    model = model_of([operator("Conv", "x", "w")], inputs, constants=constants)
    assert labels_of(plan_of(model, inputs)) == ["transpose", "CONV", "transpose"]


def test_tiles_and_joins_compile() -> None:
    nvrtc_or_skip()
    found: dict[str, KernelSource] = {}
    for dtype in ("bool", "float16", "float32", "int64"):
        inputs = {"x": np.zeros((3, 9, 8), dtype), "z": np.zeros((3, 8, 8), dtype)}
        nodes = [
            operator("Concat", "x", "z", axis=1, outputs=["c"]),
            operator("Transpose", "c", perm=[0, 2, 1]),
        ]
        launches = plan_of(model_of(nodes, inputs), inputs).launches
        sources = [launch.source for launch in launches]
        found.update((item.name, item) for item in sources if isinstance(item, KernelSource))
    assert {item.label for item in found.values()} == {"concat", "transpose"}
    for architecture in ARCHITECTURES:
        assert find_refused(list(found.values()), architecture) == {}
