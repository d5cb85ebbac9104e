"""Replicas on two nodes of one machine: spread, cancel, deadlines, lost replicas, full queues.

Run by make test-ray, as Ray is large and slow to start.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from aioinfer.errors import DeadlineExceededError, NotSupportedError
from aioinfer.serving import Limits, RefusedError
from aioinfer.serving.protocol.call import Answer, GivenTensor, InferCall, SequencePlace
from aioinfer.serving.ray import (
    RayOptions,
    RemoteInference,
    RemoteRepository,
    ReplicaSpec,
    deploy,
    undeploy,
)
from aioinfer.serving.web.application import application
from unit.serving.asgi_client import AsgiClient

pytest.importorskip("ray", reason="Ray is not installed")

MANY = 40


def made(handle: Any, options: RayOptions) -> RemoteInference:
    return RemoteInference(
        RemoteRepository(handle),
        Limits(),
        handle=handle,
        retry_count=options.retry_count,
        is_multiplexed=bool(options.model_count),
    )


OPTIONS = RayOptions(address="auto", name="two", replicas=(2, 2), queued_count=MANY)


@pytest.fixture(scope="module")
def handle(cluster: str, models: Path) -> Iterator[Any]:
    spec = ReplicaSpec(models, "BATCH:CPU(8)", functions=("served_places",))
    yield deploy(spec, OPTIONS)
    undeploy(OPTIONS)


@pytest.fixture
async def inference(handle: Any) -> RemoteInference:
    there = made(handle, OPTIONS)
    await there.repository.refresh()  # type: ignore[attr-defined]
    return there


def call(seconds: float = 0.0, timeout_us: int = 0, number: float = 1.0) -> InferCall:
    x = GivenTensor("x", "FP32", np.full((1, 3), number, np.float32), "inputs[0]")
    wait = GivenTensor("seconds", "FP32", np.array([seconds], np.float32), "inputs[1]")
    return InferCall([x, wait], timeout_us=timeout_us)


def outputs(answer: Answer) -> dict[str, Any]:
    return {requested.name: array for requested, array in answer.outputs}


async def test_requests_are_spread_over_both_nodes(inference: RemoteInference) -> None:
    answers = await asyncio.gather(
        *(inference.run("double", "", call(0.05, number=float(n))) for n in range(MANY))
    )
    told = [outputs(answer) for answer in answers]
    assert [each["y"][0, 0] for each in told] == [2.0 * n for n in range(MANY)]
    assert len({each["node"][0] for each in told}) == 2
    statistics = inference.repository.find("double").network.statistics()
    assert statistics.finished_request_count == MANY


async def test_the_protocol_answers_over_the_cluster(inference: RemoteInference) -> None:
    client = AsgiClient(application(inference))
    assert (await client.get("/v2/health/ready")).status == 200
    assert "sequence" not in (await client.get("/v2")).json()["extensions"]
    metadata = (await client.get("/v2/models/double")).json()
    assert [each["name"] for each in metadata["outputs"]] == ["y", "pid", "node"]
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    reply = await client.post("/v2/models/triple/infer", {"inputs": [x]})
    assert reply.json()["outputs"][0]["data"] == [3, 6, 9]
    wrong = await client.post("/v2/models/triple/infer", {"inputs": [{**x, "name": "z"}]})
    assert (wrong.status, wrong.error[:17]) == (400, "inputs[0].name: m")
    assert (await client.post("/v2/models/other/infer", {"inputs": [x]})).status == 404
    assert "aioinfer_retried_total" in (await client.get("/metrics")).body.decode()
    assert (await client.get("/v2/models/double/stats")).status == 200
    assert (await client.get("/page.json")).status == 200


async def test_answers_of_a_generation_come_one_by_one(inference: RemoteInference) -> None:
    x = GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")
    answers = [answer async for answer in inference.stream("triple", "", InferCall([x]))]
    assert [answer.is_last for answer in answers] == [False, False, True]


async def test_a_deadline_and_a_cancel_end_a_request(inference: RemoteInference) -> None:
    with pytest.raises((DeadlineExceededError, RefusedError)):
        await inference.run("double", "", call(3.0, timeout_us=200_000))
    running = asyncio.create_task(inference.run("double", "", call(3.0)))
    statistics = inference.repository.find("double").network.statistics
    while not statistics().running_run_count:
        await checkpoint()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert statistics().cancelled_request_count == 1
    assert statistics().running_run_count == 0


async def test_sequences_are_refused(inference: RemoteInference) -> None:
    place = SequencePlace(1, is_start=True)
    with pytest.raises(RefusedError, match="keep no state"):
        await inference.run("double", "", InferCall([], sequence=place))


async def test_no_request_is_lost_when_a_replica_is_killed(inference: RemoteInference) -> None:
    first = outputs(await inference.run("double", "", call()))
    calls = [asyncio.create_task(inference.run("double", "", call(1.0))) for _ in range(32)]
    await asyncio.sleep(1.0)  # both replicas are at it then, for half a minute of sleep
    os.kill(int(first["pid"][0]), signal.SIGKILL)
    answers = await asyncio.gather(*calls)
    assert {float(outputs(answer)["y"][0, 0]) for answer in answers} == {2.0}
    assert inference.repository.retried_count


async def test_an_update_under_load_loses_no_request(
    inference: RemoteInference, models: Path
) -> None:
    is_over = False

    async def ask() -> int:
        count = 0
        while not is_over:
            await inference.run("double", "", call(0.02))
            count += 1
        return count

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    spec = ReplicaSpec(models, "CPU", functions=("served_places",))
    try:
        await asyncio.to_thread(deploy, spec, OPTIONS)
    finally:
        is_over = True
    assert all(await asyncio.gather(*asking))


async def test_too_many_are_refused_at_once(cluster: str, models: Path, handle: Any) -> None:
    await asyncio.to_thread(undeploy, OPTIONS)
    few = RayOptions(address="auto", name="few", ongoing_count=2, target_count=2, queued_count=2)
    spec = ReplicaSpec(models, "CPU", functions=("served_places",))
    there = made(await asyncio.to_thread(deploy, spec, few), few)
    await there.repository.refresh()  # type: ignore[attr-defined]
    done = await asyncio.gather(
        *(there.run("double", "", call(0.5)) for _ in range(20)), return_exceptions=True
    )
    refused = [each for each in done if isinstance(each, RefusedError)]
    answered = [each for each in done if isinstance(each, Answer)]
    assert len(refused) + len(answered) == 20
    assert refused
    assert answered
    assert {(each.status, each.retry_after_s) for each in refused} == {(503, 1)}
    await asyncio.to_thread(undeploy, few)


async def test_a_replica_batches_and_ends_what_is_cancelled(cluster: str, models: Path) -> None:
    only = RayOptions(address="auto", name="only")
    spec = ReplicaSpec(models, "BATCH:CPU(8)", {"AUTO_BATCH_TIMEOUT": 1000}, ("served_places",))
    handle = await asyncio.to_thread(deploy, spec, only)
    there = made(handle, only)
    await there.repository.refresh()  # type: ignore[attr-defined]
    x = InferCall([GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")])
    await asyncio.gather(*(there.run("triple", "", x) for _ in range(16)))
    running = asyncio.create_task(there.run("double", "", call(5.0)))
    while True:
        now = await handle.statistics.remote()
        if now["double/1"].running_run_count:
            break
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await handle.statistics.remote())["double/1"].cancelled_request_count:
        pass
    assert now["triple/1"].finished_request_count == 16
    assert max(now["triple/1"].group_sizes) > 1
    await asyncio.to_thread(undeploy, only)


async def test_a_model_that_cannot_be_loaded_is_told(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.onnx").write_bytes(b"no model")
    wrong = RayOptions(address="auto", name="wrong")
    with pytest.raises(NotSupportedError, match="did not come up"):
        await asyncio.to_thread(deploy, ReplicaSpec(tmp_path / "wrong.onnx", "CPU"), wrong)


async def test_models_come_when_they_are_asked_for(cluster: str, models: Path) -> None:
    one = RayOptions(address="auto", name="one", model_count=1)
    spec = ReplicaSpec(models, "CPU", functions=("served_places",))
    there = made(await asyncio.to_thread(deploy, spec, one), one)
    await there.repository.refresh()  # type: ignore[attr-defined]
    assert sorted(there.repository.names()) == ["counter", "double", "triple"]
    x = InferCall([GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")])
    for _ in range(2):
        assert outputs(await there.run("triple", "", x))["y"][0, 0] == 3
        assert outputs(await there.run("double", "", call()))["y"][0, 0] == 2
    await asyncio.to_thread(undeploy, one)
