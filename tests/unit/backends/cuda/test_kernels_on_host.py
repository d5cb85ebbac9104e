"""What the driver compiles for a GPU computes what REFERENCE computes, in C++ on the host."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.launching.kernel_source import KernelSource, program_text
from aioinfer.backends.cuda.cupy_driver import CupyDriver
from aioinfer.backends.cuda.plugin import CudaPlugin
from exhaustive import all_but
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.host_cuda import host_cupy_or_skip

PLACES = KernelSource.of(
    "places",
    """
__kernel void $name(__global int *y, const int width, const int height) {
    const int x = get_global_id(0), row = get_global_id(1), plane = get_global_id(2);
    __global int *to = y + ((plane * height + row) * width + x) * 4;
    to[0] = get_group_id(0) + 100 * get_group_id(1) + 10000 * get_group_id(2);
    to[1] = get_local_id(0) + 100 * get_local_id(1) + 10000 * get_local_id(2);
    to[2] = get_num_groups(0) + 100 * get_num_groups(1) + 10000 * get_num_groups(2);
    to[3] = get_global_size(0) + 100 * get_global_size(1) + 10000 * get_global_size(2);
}
""",
)
SIZES, GROUP = (6, 8, 3), (2, 4, 1)
BOUNDS = [("f32", 1e-5), ("f16", 4e-3), ("bf16", 3e-2)]


@pytest.mark.parametrize("longest", all_but([1], [65535, 1]))
def test_work_items_know_their_places_however_the_grid_is_laid_out(
    longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioinfer.backends.cuda.kernel_header._OTHERS_LONGEST", longest)
    driver = CupyDriver(host_cupy_or_skip(tmp_path), frozenset)
    context = driver.open(driver.find_devices()[0])
    found = np.zeros((*SIZES[::-1], 4), np.int32)
    memory, queue = context.buffer(found.nbytes), context.queue("compute")
    kernel = context.program(program_text([PLACES])).kernel(PLACES.name)
    kernel.set_arguments([memory, *SIZES[:2]])
    queue.launch(kernel, SIZES, GROUP)
    queue.read(found.reshape(-1).view(np.uint8), memory).wait()
    groups = [size // group for size, group in zip(SIZES, GROUP, strict=True)]
    for place in itertools.product(*map(range, SIZES)):
        numbers = (
            [at // group for at, group in zip(place, GROUP, strict=True)],
            [at % group for at, group in zip(place, GROUP, strict=True)],
            groups,
            SIZES,
        )
        wanted = [x + 100 * y + 10000 * z for x, y, z in numbers]
        assert found[place[::-1]].tolist() == wanted


@pytest.mark.exhaustive
@pytest.mark.parametrize(("hint", "bound"), all_but([("f16", 4e-3)], BOUNDS))
def test_a_model_gives_what_reference_gives(hint: str, bound: float, tmp_path: Path) -> None:
    cupy = host_cupy_or_skip(tmp_path)
    chance = np.random.default_rng(0)
    # Quarters, which every type has exactly, so that the largest stays the largest.
    feeds = {"x": (chance.integers(-12, 12, (2, 5, 40)) / 4).astype(np.float32)}
    with Core() as core:
        core.unregister_plugin("CUDA")
        core.register_plugin(
            "CUDA", lambda own, name: CudaPlugin(own, name, CupyDriver(cupy, frozenset))
        )
        config = {"INFERENCE_PRECISION_HINT": hint}
        assert_same_on("CUDA", core, _model(feeds), feeds, bound=bound, **config)


def _model(feeds: dict[str, Any]) -> Any:
    """Make a model of matmuls, rows in local memory, fused groups, copies and integers."""
    chance = np.random.default_rng(1)
    weights = chance.standard_normal((40, 33)).astype(np.float32)
    nodes = [
        operator("MatMul", "x", "w", outputs=["matmul"]),
        operator("Gelu", "matmul", outputs=["active"]),
        operator("LayerNormalization", "active", "scale", outputs=["normal"]),
        operator("Transpose", "normal", outputs=["turned"], perm=[2, 0, 1]),
        operator("Softmax", "turned", outputs=["y"], axis=0),
        operator("ArgMax", "x", outputs=["places"], axis=2),
    ]
    constants = {"w": weights, "scale": np.linspace(0.5, 1.5, 33, dtype=np.float32)}
    return model_of(nodes, feeds, ["y", "places"], constants)
