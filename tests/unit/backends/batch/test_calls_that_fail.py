"""Want of memory for any one call inside BATCH: every request is answered, and the rest goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends import batch
from aioinfer.backends.batch import bundle
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.backends.batch.part import Part, wake_all
from aioinfer.errors import DeviceError
from aioinfer.executors import TimerHandle
from aioinfer.testing import VirtualTimer
from unit.backends.answered_once import (
    WAYS,
    Ask,
    X,
    check_each_is_answered_once,
    model,
)

THROUGH_EXECUTORS = {"DEVICE_PROPERTIES": {"REFERENCE": {"INLINE_THRESHOLD_US": 0}}}
"""No caller carries its runs itself, however short they are."""


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize(("config", "least"), [(THROUGH_EXECUTORS, 25), ({}, 4)])
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    least: int,
    ask: Ask,
) -> None:
    with core.load_network(model(), "BATCH:REFERENCE(4)", config) as network:
        call_count, failed_count = check_each_is_answered_once(network, batch, monkeypatch, ask)
    assert call_count > least, "calls were not seen"
    assert failed_count > least // 3


def test_a_run_that_has_no_place_among_those_under_way_is_answered(core: aioinfer.Core) -> None:
    class Places(set[object]):
        """Has no memory the first time."""

        is_full = True

        def add(self, item: object) -> None:
            if self.is_full:
                self.is_full = False
                raise MemoryError
            super().add(item)

    with core.load_network(model(), "BATCH:REFERENCE(4)") as network:
        assert isinstance(network, BatchNetwork)
        vars(network)["_under_way"] = Places()
        request = network.create_infer_request()
        request.start_async(X)
        with pytest.raises(DeviceError, match="memory"):
            request.wait(10)
        np.testing.assert_array_equal(request.infer_sync(X)["y"], -X)


def test_calls_that_a_loop_has_carried_wake_once_more_without_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def wake(parts: Sequence[Part]) -> None:
        caller = sys._getframe(1).f_code.co_name
        if caller == "_answer_here" and not failed:
            failed.append(len(parts))
            raise MemoryError
        wake_all(parts)

    async def ask(network: aioinfer.ExecutableNetwork) -> list[Any]:
        for _ in range(100):  # the gate has to know that runs are short
            calls = [network.infer({"x": X}) for _ in range(12)]
            outcomes = await asyncio.wait_for(asyncio.gather(*calls), 20)
        return outcomes

    monkeypatch.setattr(bundle, "wake_all", wake)
    with core.load_network(model(), "BATCH:REFERENCE(4)") as network:
        for outcome in asyncio.run(ask(network)):
            np.testing.assert_array_equal(outcome["y"], -X)
    assert failed


def test_an_alarm_that_could_not_be_set_is_set_for_later_requests(core: aioinfer.Core) -> None:
    class Clock(VirtualTimer):
        is_full = False

        def call_at(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
            if self.is_full and getattr(call, "__func__", None) is BatchNetwork._ring:
                self.is_full = False
                raise MemoryError
            return super().call_at(when_s, call)

    config = {"AUTO_BATCH_TIMEOUT": 30_000}
    with core.load_network(model(), "BATCH:REFERENCE(4)", config) as network:
        assert isinstance(network, BatchNetwork)
        network.clock = clock = Clock(time.monotonic())
        first, second, third = (network.create_infer_request() for _ in range(3))
        first.start_async(X)
        clock.is_full = True
        second.start_async(X, deadline_s=20.0)
        for request in (first, second):
            with pytest.raises(DeviceError, match="memory"):
                request.wait(10)
        third.start_async(X)
        clock.advance(40.0)
        assert third.wait(10)
