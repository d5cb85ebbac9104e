"""Sequences: state that stays with a client, its bounds, and its end, on a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.errors import DeadlineExceededError
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.call import Answer, GivenTensor, InferCall, SequencePlace
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.sequences import Sequences
from aioinfer.testing import MockDevices
from unit.serving.models import STATE, counter, running_sum, scaled


class Clock:
    """Time that the test moves on, and the calls that wait for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now_s

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append((self.now_s + seconds, call))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [call for time_s, call in self.calls if time_s <= self.now_s]
        self.calls = [entry for entry in self.calls if entry[0] > self.now_s]
        for call in due:
            call()


class Served:
    def __init__(self, *networks: aioinfer.ExecutableNetwork, limits: Limits) -> None:
        self.clock = Clock()
        self.inference = Inference(FixedRepository(networks), limits, clock=self.clock)
        self.sequences = Sequences(limits, self.clock, self.clock.call_later)
        self.inference.sequences = self.sequences

    async def answer(
        self, name: int | str, value: float, model: str = "sums", **place: bool
    ) -> Answer:
        array = np.full((1, 3), value, np.float32)
        call = InferCall(
            [GivenTensor("x", "FP32", array, "inputs[0]")], sequence=SequencePlace(name, **place)
        )
        return await self.inference.run(model, "", call)

    async def add(self, name: int | str, value: float, **place: bool) -> float:
        answer = await self.answer(name, value, **place)
        return float({asked.name: array for asked, array in answer.outputs}["y"][0, 0])


@pytest.fixture
def served(core: aioinfer.Core, tmp_path: Path) -> Iterator[Served]:
    sums = core.load_network(running_sum(tmp_path / "sums.onnx"), "REFERENCE", STATE)
    double = core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE")
    with sums, double:
        limits = Limits(sequence_count=2, sequence_idle_s=60)
        yield Served(sums, double, limits=limits)


async def test_each_sequence_has_its_own_state(served: Served) -> None:
    assert await served.add(1, 1, is_start=True) == 1
    assert await served.add("one", 10, is_start=True) == 10
    assert await served.add(1, 2) == 3
    assert await served.add("one", 20) == 30
    assert await served.add(1, 3, is_end=True) == 6
    assert served.sequences.open_count == 1
    with pytest.raises(RefusedError, match=r"^parameters\.sequence_id: sequence 1 is not open"):
        await served.add(1, 4)
    assert await served.add(1, 5, is_start=True, is_end=True) == 5
    assert await served.add("one", 5, is_start=True) == 5  # begins anew


async def test_one_too_many_is_503_until_another_has_ended(served: Served) -> None:
    await served.add(1, 1, is_start=True)
    await served.add(2, 1, is_start=True)
    with pytest.raises(RefusedError, match="2 sequences are open already") as refused:
        await served.add(3, 1, is_start=True)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
    await served.add(2, 1, is_end=True)
    assert await served.add(3, 1, is_start=True) == 1


async def test_one_that_nobody_uses_ends(served: Served) -> None:
    await served.add(1, 1, is_start=True)
    served.clock.advance(40)
    await served.add(2, 1, is_start=True)
    served.clock.advance(40)  # the first look comes: 1 is idle for 80 s, 2 for 40
    assert served.sequences.open_count == 1
    assert await served.add(2, 1) == 2
    with pytest.raises(RefusedError, match="not open"):
        await served.add(1, 1)
    served.clock.advance(60)
    assert served.sequences.open_count == 0
    served.clock.advance(1000)
    assert served.clock.calls == []


async def test_a_model_without_state_has_no_sequences(served: Served) -> None:
    with pytest.raises(RefusedError, match="keeps no state"):
        await served.answer(1, 1, "double", is_start=True)
    assert served.sequences.open_count == 0


async def test_a_beginning_that_fails_is_none(served: Served) -> None:
    call = InferCall(
        [GivenTensor("x", "FP32", np.zeros((1, 2), np.float32), "inputs[0]")],
        sequence=SequencePlace(1, is_start=True),
    )
    with pytest.raises(RefusedError):
        await served.inference.run("sums", "", call)
    assert served.sequences.open_count == 0


async def test_a_closed_network_ends_its_sequences(core: aioinfer.Core, tmp_path: Path) -> None:
    network = core.load_network(running_sum(tmp_path / "sums.onnx"), "REFERENCE", STATE)
    served = Served(network, limits=Limits())
    await served.add(1, 1, is_start=True)
    held = served.sequences
    await network.aclose()
    with pytest.raises(RefusedError):
        await served.add(1, 1)
    held.sweep()
    assert held.open_count == 0


class Held:
    """A network with state on a device that computes when the test says so."""

    def __init__(self, path: Path) -> None:
        self.devices = MockDevices(1)
        self.core = aioinfer.Core()
        self.core.register_plugin("MOCK", self.devices.make_plugin)
        self.network = self.core.load_network(running_sum(path), "MOCK", STATE)
        self.served = Served(self.network, limits=Limits())

    def release(self) -> None:
        if self.devices[0].held.waiting_count:
            self.devices[0].held.release()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await checkpoint()

    async def finish(self, *calls: asyncio.Future[float]) -> None:
        while not all(call.done() for call in calls):
            self.release()
            await checkpoint()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path / "sums.onnx")
    with made.core:
        yield made
        while made.network.statistics().running_run_count:
            made.release()


async def test_requests_of_a_sequence_run_in_order_one_at_a_time(held: Held) -> None:
    calls = [asyncio.ensure_future(held.served.add(1, 1, is_start=True))]
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    calls += [asyncio.ensure_future(held.served.add(1, 10**n)) for n in (1, 2)]
    for _ in range(20):
        await checkpoint()
    assert held.network.statistics().running_run_count == 1
    await held.finish(*calls)
    assert [call.result() for call in calls] == [1, 11, 111]


async def test_one_that_is_cancelled_leaves_the_state_and_the_turn(held: Held) -> None:
    first = asyncio.ensure_future(held.served.add(1, 1, is_start=True))
    await held.finish(first)
    second = asyncio.ensure_future(held.served.add(1, 10))
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    third = asyncio.ensure_future(held.served.add(1, 100))
    fourth = asyncio.ensure_future(held.served.add(1, 1000))
    for _ in range(5):
        await checkpoint()
    third.cancel()
    second.cancel()
    await held.until(lambda: held.network.statistics().cancelled_request_count == 1)
    await held.finish(second, third, fourth)
    assert fourth.result() == 1001


async def test_one_that_begins_anew_waits_for_no_run_that_was_cancelled(held: Held) -> None:
    first = asyncio.ensure_future(held.served.add(1, 1, is_start=True))
    await held.finish(first)
    second = asyncio.ensure_future(held.served.add(1, 10))
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    second.cancel()
    await held.until(second.done)
    assert held.network.statistics().running_run_count == 1
    third = asyncio.ensure_future(held.served.add(1, 100, is_start=True))
    await held.until(lambda: third.done() or held.network.statistics().running_run_count == 2)
    await held.finish(third)
    assert third.result() == 100
    fourth = asyncio.ensure_future(held.served.add(1, 1000))
    await held.finish(fourth)
    assert fourth.result() == 1100


async def test_one_that_begins_when_none_was_open_ends_as_well(held: Held) -> None:
    clock, sequences = held.served.clock, held.served.sequences
    first = asyncio.ensure_future(held.served.add(1, 1, is_start=True))
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    second, third = (asyncio.ensure_future(held.served.add(1, 1, is_start=True)) for _ in range(2))
    for _ in range(5):
        await checkpoint()
    second.cancel()
    await held.until(second.done)
    clock.advance(60)  # the first run lasts; nothing is open meanwhile
    await held.finish(first, third)
    assert sequences.open_count == 1
    clock.advance(60)
    assert sequences.open_count == 0


async def test_a_deadline_counts_while_others_run(held: Held) -> None:
    first = asyncio.ensure_future(held.served.add(1, 1, is_start=True))
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    call = InferCall(
        [GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")],
        sequence=SequencePlace(1),
        timeout_us=1000,
    )
    with pytest.raises(DeadlineExceededError):
        await held.served.inference.run("sums", "", call)
    await held.finish(first)
    assert first.result() == 1


async def test_more_that_wait_than_may_are_503(held: Held) -> None:
    calls = [asyncio.ensure_future(held.served.add(1, 1, is_start=True))]
    await held.until(lambda: held.network.statistics().running_run_count == 1)
    calls += [asyncio.ensure_future(held.served.add(1, 1)) for _ in range(63)]
    for _ in range(5):
        await checkpoint()
    with pytest.raises(RefusedError, match="64 requests of sequence 1 wait already"):
        await held.served.add(1, 1)
    await held.finish(*calls)
    assert calls[-1].result() == 64


async def test_a_generation_counts_as_a_sequence(core: aioinfer.Core, tmp_path: Path) -> None:
    from aioinfer.serving import Generation

    generation = Generation({"next": "token"}, 100)
    with core.load_network(counter(tmp_path / "counter.onnx"), "REFERENCE", STATE) as network:
        repository = FixedRepository(network, {"counter": generation})
        inference = Inference(repository, Limits(sequence_count=1))
        call = InferCall([GivenTensor("token", "INT64", np.int64([[1]]), "inputs[0]")])
        answers = inference.stream("counter", "", call)
        await anext(answers)
        assert inference.sequences.open_count == 1
        with pytest.raises(RefusedError, match="1 sequences are open"):
            await anext(inference.stream("counter", "", call))
        await answers.aclose()
        assert inference.sequences.open_count == 0
