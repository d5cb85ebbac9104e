"""Requests to replicas, without Ray: what is asked again, refused, cancelled and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.errors import ClosedError, DeadlineExceededError, PropertyError
from aioinfer.serving import Limits, RefusedError
from aioinfer.serving.protocol.call import Answer, GivenTensor, InferCall, Requested, SequencePlace
from aioinfer.serving.ray.failures import failure_of
from aioinfer.serving.ray.options import RayOptions, deployment_options, replica_bounds
from aioinfer.serving.ray.remote import RemoteInference, RemoteRepository
from aioinfer.serving.ray.replica import ModelFacts, Refusal, Replica, ReplicaSpec
from aioinfer.serving.repository.models import VersionState
from unit.serving.models import scaled


class RayActorError(Exception):
    pass


class ActorDiedError(RayActorError):
    pass


class BackPressureError(Exception):
    pass


class TaskCancelledError(Exception):
    pass


FACTS = ModelFacts(VersionState("m", "1", "READY"), device="CPU")
ANSWER = Answer("m", "1", "", [(Requested("y"), np.ones(1, np.float32))])
FOREVER = object()


class Response:
    """What a handle returns: an answer, an error, or nothing for ever."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self._outcomes, self.is_cancelled = list(outcomes), False
        self._cancelled = asyncio.Event()

    def cancel(self) -> None:
        self.is_cancelled = True
        self._cancelled.set()

    async def _next(self) -> Any:
        if not self._outcomes:
            raise StopAsyncIteration
        outcome = self._outcomes.pop(0)
        if outcome is FOREVER:
            await self._cancelled.wait()
            raise TaskCancelledError
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def __await__(self) -> Any:
        return self._next().__await__()

    def __anext__(self) -> Any:
        return self._next()


class Handle:
    """Answers one request after the other by what the test has put down."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self.responses: list[Response] = []
        self.asked: list[tuple[Any, ...]] = []
        self.options_given: list[dict[str, Any]] = []

    def options(self, **named: Any) -> Handle:
        self.options_given.append(named)
        return self

    @property
    def facts(self) -> Any:
        return Method(lambda: Response([[FACTS]]))

    @property
    def run(self) -> Any:
        return Method(self._respond)

    stream = run

    def _respond(self, *asked: Any) -> Response:
        self.asked.append(asked)
        outcome = self._outcomes.pop(0)
        made = Response(outcome if isinstance(outcome, list) else [outcome])
        self.responses.append(made)
        return made


class Method:
    def __init__(self, call: Callable[..., Response]) -> None:
        self.remote = call


async def remote(handle: Handle, retry_count: int = 2, **named: Any) -> RemoteInference:
    repository = RemoteRepository(handle)
    made = RemoteInference(repository, Limits(), handle=handle, retry_count=retry_count, **named)
    assert not repository.is_ready
    await repository.refresh()
    assert repository.is_ready
    return made


def statistics(inference: RemoteInference) -> Any:
    return inference.repository.find("m").network.statistics()


CALL = InferCall([])


async def test_a_request_goes_to_another_replica_when_its_own_has_ended() -> None:
    inference = await remote(Handle(ActorDiedError(), RayActorError(), ANSWER))
    assert await inference.run("m", "", CALL) is ANSWER
    assert inference.repository.retried_count == 2
    assert statistics(inference).finished_request_count == 1
    assert inference.repository.find("m").last_inference_ms > 0


async def test_how_often_is_bounded() -> None:
    handle = Handle(*[ActorDiedError()] * 5)
    inference = await remote(handle, retry_count=1)
    with pytest.raises(RefusedError, match="has ended, after 1 retries") as caught:
        await inference.run("m", "", CALL)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    assert len(handle.responses) == 2
    assert statistics(inference).failed_request_count == 1


async def test_a_full_queue_is_refused_at_once() -> None:
    inference = await remote(Handle(BackPressureError()))
    with pytest.raises(RefusedError) as caught:
        await inference.run("m", "", CALL)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    assert inference.repository.retried_count == 0


async def test_what_a_replica_refuses_is_told_as_it_is() -> None:
    refusal = Refusal.of(RefusedError("no", status=404, field="inputs"))
    inference = await remote(Handle(refusal))
    with pytest.raises(RefusedError, match=r"^inputs: no$") as caught:
        await inference.run("m", "", CALL)
    assert caught.value.status == 404


async def test_the_deadline_is_for_all_tries_and_cancels() -> None:
    handle = Handle(ActorDiedError(), FOREVER)
    inference = await remote(handle, clock=lambda: 0.0)
    with pytest.raises(DeadlineExceededError):
        await inference.run("m", "", InferCall([], timeout_us=2000), deadline_s=100.0)
    assert handle.responses[-1].is_cancelled
    assert [asked[3] for asked in handle.asked] == [0.002, 0.002]


async def test_cancelling_ends_the_request_in_its_replica() -> None:
    handle = Handle(FOREVER)
    inference = await remote(handle)
    running = asyncio.create_task(inference.run("m", "", CALL))
    while not handle.responses:
        await checkpoint()
    assert statistics(inference).running_run_count == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert handle.responses[0].is_cancelled
    now = statistics(inference)
    assert (now.cancelled_request_count, now.running_run_count) == (1, 0)


async def test_the_end_of_the_server_ends_what_runs() -> None:
    handle = Handle(FOREVER)
    inference = await remote(handle)
    running = asyncio.create_task(inference.run("m", "", CALL))
    while not handle.responses:
        await checkpoint()
    await checkpoint()
    assert isinstance(inference.repository, RemoteRepository)
    inference.repository.abort()
    with pytest.raises(ClosedError):
        await running


async def test_answers_are_streamed_and_only_the_first_is_tried_again() -> None:
    handle = Handle([ActorDiedError()], [ANSWER, ANSWER])
    inference = await remote(handle, is_multiplexed=True)
    assert [each async for each in inference.stream("m", "", CALL)] == [ANSWER, ANSWER]
    assert {"stream": True, "multiplexed_model_id": "m"} in handle.options_given
    inference = await remote(Handle([ANSWER, ActorDiedError()]))
    answers = inference.stream("m", "", CALL)
    assert await anext(answers) is ANSWER
    with pytest.raises(RefusedError, match="has ended"):
        await anext(answers)


async def test_a_stream_that_is_left_is_ended() -> None:
    handle = Handle([ANSWER, FOREVER])
    inference = await remote(handle)
    answers = inference.stream("m", "", CALL)
    assert await anext(answers) is ANSWER
    await answers.aclose()
    assert handle.responses[0].is_cancelled


async def test_sequences_are_refused() -> None:
    inference = await remote(Handle())
    with pytest.raises(RefusedError, match=r"parameters\.sequence_id"):
        await inference.run("m", "", InferCall([], sequence=SequencePlace(1)))


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ActorDiedError(), "lost"),
        (BackPressureError(), "busy"),
        (TaskCancelledError(), "cancelled"),
        (ValueError(), "other"),
    ],
)
def test_errors_are_known_by_their_names(error: Exception, wanted: str) -> None:
    assert failure_of(error) == wanted


def test_options_become_those_of_the_deployment() -> None:
    fixed = deployment_options(RayOptions(replicas=(3, 3), gpus=0.5, queued_count=7))
    assert (fixed["num_replicas"], fixed["max_queued_requests"]) == (3, 7)
    assert fixed["ray_actor_options"] == {"num_cpus": 1.0, "num_gpus": 0.5}
    scaling = deployment_options(RayOptions(replicas=(1, 8), ongoing_count=16, scale_up_s=1.0))
    assert "num_replicas" not in scaling
    assert scaling["autoscaling_config"] == {
        "min_replicas": 1,
        "max_replicas": 8,
        "target_ongoing_requests": 16,
        "upscale_delay_s": 1.0,
        "downscale_delay_s": 300.0,
        "metrics_interval_s": 0.5,  # Ray refuses one that is not below the other
        "look_back_period_s": 1.0,
    }


def test_replicas_are_a_number_or_two() -> None:
    assert (replica_bounds("3"), replica_bounds("1-8")) == ((3, 3), (1, 8))
    for text in ("", "0", "8-1", "1-", "-3", "x", "1-2-3", "²"):
        with pytest.raises(PropertyError, match="--ray-replicas"):
            replica_bounds(text)


@pytest.fixture
async def replica(core: aioinfer.Core, tmp_path: Path) -> AsyncIterator[Replica]:
    scaled(tmp_path / "m" / "1" / "model.onnx", 2.0)
    scaled(tmp_path / "other" / "1" / "model.onnx", 3.0)
    (tmp_path / "m" / "model.toml").write_text("[generate]\nfeed = { y = 'x' }\nsteps = 3\n")
    made = Replica(core, ReplicaSpec(tmp_path, "REFERENCE", poll_s=1000.0), only="m")
    await made.begin()
    yield made
    await made.aclose()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_replica_answers_refuses_and_tells_of_its_model(replica: Replica) -> None:
    (facts,) = replica.facts()
    assert (facts.state.model, facts.state.state, facts.device) == ("m", "READY", "REFERENCE.0")
    assert ([port.name for port in facts.inputs], facts.keeps_bytes) == (["x"], False)
    x = InferCall([GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")])
    answer = await replica.run("m", "", x, None)
    assert isinstance(answer, Answer)
    assert answer.outputs[0][1].tolist() == [[2, 2, 2]]
    refused = await replica.run("m", "", CALL, None)
    assert isinstance(refused, Refusal)
    assert refused == Refusal("inputs: 'x' missing", 400)
    assert str(Refusal.of(refused.error())) == str(refused)
    told = [each async for each in replica.stream("m", "", x, None)]
    assert [each.outputs[0][1][0, 0] for each in told if isinstance(each, Answer)] == [2, 4, 8]
    told = [each async for each in replica.stream("other", "", x, None)]
    assert [each.status for each in told if isinstance(each, Refusal)] == [404]


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_time_to_scale_up_that_ray_does_not_take_is_refused_by_its_name(seconds: float) -> None:
    with pytest.raises(PropertyError, match="scale_up_s"):
        deployment_options(RayOptions(replicas=(1, 2), scale_up_s=seconds))
