"""Many requests at once on several slots: each gets the answer to its own inputs, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from models import MODELS

from aioinfer import Core, ExecutableNetwork
from gpu.device import DEVICE
from unit.benchmarks.small_networks import SMALL, inputs_of

THROUGHPUT = {"PERFORMANCE_HINT": "THROUGHPUT"}
TASKS, ROUNDS, KINDS = 32, 40, 8
Arrays = Mapping[str, Any]


def assert_bitwise_equal(found: Arrays, wanted: Arrays) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


def answers(network: ExecutableNetwork, kinds: Sequence[Arrays]) -> list[dict[str, Any]]:
    """Ask for one after the other."""
    request = network.create_infer_request()
    return [dict(request.infer_sync(dict(inputs))) for inputs in kinds]


async def race(
    network: ExecutableNetwork, kinds: Sequence[Arrays], wanted: Sequence[Arrays]
) -> None:
    """Let each task ask for all kinds again and again, each task in an order of its own."""

    async def work(task: int) -> None:
        request = network.create_infer_request()
        for number in np.random.default_rng(task).integers(0, len(kinds), ROUNDS):
            found = await request.infer(dict(kinds[number]))
            assert_bitwise_equal(found, wanted[number])

    await asyncio.gather(*map(work, range(TASKS)))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "minilm_l6"])
async def test_requests_that_race_get_their_own_answers(
    core: Core, name: str, precision: str
) -> None:
    model = MODELS[name].build()
    kinds = [MODELS[name].inputs(np.random.default_rng(seed), 1) for seed in range(KINDS)]
    config = {**THROUGHPUT, "INFERENCE_PRECISION_HINT": precision}
    with core.load_network(model, DEVICE, config) as network:
        assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") >= 2
        await race(network, kinds, answers(network, kinds))


@pytest.mark.timeout(180)
async def test_shapes_that_race_get_their_own_answers(core: Core) -> None:
    name = "mobilenet_v2"
    model: onnx.ModelProto = SMALL[name](batch="batch")
    full = inputs_of(name)["image"]
    kinds = [{"image": np.repeat(full, 3, axis=0)[:count] + count} for count in range(1, 7)]
    with core.load_network(model, DEVICE, THROUGHPUT) as network:
        await race(network, kinds, answers(network, kinds))


@pytest.mark.timeout(180)
async def test_networks_that_share_a_device_do_not_meet(core: Core) -> None:
    names = ("resnet50", "minilm_l6")
    kinds = {
        name: [MODELS[name].inputs(np.random.default_rng(seed), 1) for seed in range(KINDS)]
        for name in names
    }
    networks = {name: core.load_network(MODELS[name].build(), DEVICE, THROUGHPUT) for name in names}
    try:
        wanted = {name: answers(networks[name], kinds[name]) for name in names}
        await asyncio.gather(*(race(networks[name], kinds[name], wanted[name]) for name in names))
    finally:
        for network in networks.values():
            network.close()
