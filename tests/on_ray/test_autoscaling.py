"""Replicas that come with requests that wait, and go when none do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer.serving import Limits
from aioinfer.serving.protocol.call import Answer, GivenTensor, InferCall
from aioinfer.serving.ray import (
    RayOptions,
    RemoteInference,
    RemoteRepository,
    ReplicaSpec,
    deploy,
    undeploy,
)

pytest.importorskip("ray", reason="Ray is not installed")

OPTIONS = RayOptions(
    address="auto",
    name="scaled",
    replicas=(1, 2),
    ongoing_count=8,
    target_count=4,
    scale_up_s=1.0,
    scale_down_s=3.0,
)
WITHIN_S = 120.0
FEW = 3  # at once: what one replica has room for


def _running() -> int:
    from ray import serve

    replicas = serve.status().applications[OPTIONS.name].deployments["models"].replica_states
    return sum(count for state, count in replicas.items() if "RUNNING" in str(state))


async def _until(count: int) -> None:
    def wait() -> None:
        end_s = time.monotonic() + WITHIN_S
        while _running() != count:
            assert time.monotonic() < end_s
            time.sleep(0.5)  # the controller is another process, and tells nobody

    await asyncio.to_thread(wait)


async def test_replicas_follow_the_queue_and_no_request_is_lost(cluster: str, models: Path) -> None:
    spec = ReplicaSpec(models, "CPU", functions=("served_places",))
    handle = await asyncio.to_thread(deploy, spec, OPTIONS)
    there = RemoteInference(
        RemoteRepository(handle), Limits(), handle=handle, retry_count=OPTIONS.retry_count
    )
    await there.repository.refresh()  # type: ignore[attr-defined]
    x = GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")
    at_once = "seconds", "FP32", np.zeros(1, np.float32), "inputs[1]"
    is_over = False
    places: set[int] = set()
    is_spread = asyncio.Event()

    async def ask(seconds: float) -> int:
        count = 0
        wait = GivenTensor("seconds", "FP32", np.array([seconds], np.float32), "inputs[1]")
        while not is_over:
            answer = await there.run("double", "", InferCall([x, wait]))
            places.add(int(_outputs(answer)["pid"][0]))
            if len(places) == 2:
                is_spread.set()
            assert _outputs(answer)["y"][0, 0] == 2
            count += 1
        return count

    assert await asyncio.to_thread(_running) == 1
    asking = [asyncio.create_task(ask(0.2)) for _ in range(16)]
    try:
        await _until(2)
        await asyncio.wait_for(is_spread.wait(), WITHIN_S)
        is_over = True
        assert all(await asyncio.gather(*asking))
        is_over = False
        is_spread.clear()
        places.clear()
        asking = [asyncio.create_task(ask(0.02)) for _ in range(FEW)]
        await asyncio.wait_for(is_spread.wait(), WITHIN_S)  # both replicas work, one of them ends
        await _until(1)
        for _ in range(2):  # what the one that ended had begun has come by the second time
            places.clear()
            for _ in range(20):
                await there.run("double", "", InferCall([x, GivenTensor(*at_once)]))
        is_over = True
        assert sum(await asyncio.gather(*asking)) > 100
        assert len(places) == 1
        statistics = there.repository.find("double").network.statistics()
        assert (statistics.failed_request_count, statistics.cancelled_request_count) == (0, 0)
    finally:
        is_over = True
        await asyncio.gather(*asking, return_exceptions=True)
        await asyncio.to_thread(undeploy, OPTIONS)


def _outputs(answer: Answer) -> dict[str, Any]:
    return {requested.name: array for requested, array in answer.outputs}
