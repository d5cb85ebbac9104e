"""CUDA graphs: replays are the same every time, and the same as launches one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import MODELS

from aioinfer import Core
from gpu.device import DEVICE
from gpu.test_racing_slots import assert_bitwise_equal

REPLAYS = 500
NETWORKS = ("resnet50", "minilm_l6")


def inputs_for(name: str, seed: int = 1) -> dict[str, Any]:
    return MODELS[name].inputs(np.random.default_rng(seed), 1)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_replays_are_bitwise_equal(core: Core, name: str, precision: str) -> None:
    one, other = inputs_for(name), inputs_for(name, seed=2)
    config = {"INFERENCE_PRECISION_HINT": precision}
    with core.load_network(MODELS[name].build(), DEVICE, config) as network:
        request = network.create_infer_request()
        wanted = dict(request.infer_sync(one))
        for number in range(REPLAYS):
            if number % 10 == 0:
                request.infer_sync(other)  # what a run leaves in the arena is not what it needs
            assert_bitwise_equal(request.infer_sync(one), wanted)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("eager", [{"CUDA_GRAPHS": "NO"}, {"PERF_COUNT": "YES"}], ids=str)
@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_give_what_single_launches_give(
    core: Core, name: str, precision: str, eager: dict[str, str]
) -> None:
    model, inputs = MODELS[name].build(), inputs_for(name)
    found = []
    for config in ({}, eager):
        config = {"INFERENCE_PRECISION_HINT": precision, **config}
        with core.load_network(model, DEVICE, config) as network:
            found.append(dict(network.create_infer_request().infer_sync(inputs)))
    assert_bitwise_equal(*found)
