"""A model that moves between devices, which compile and fail when the test says so."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.auto import executable_network
from aioinfer.errors import (
    ClosedError,
    DeviceError,
    NotSupportedError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.executors import ImmediateExecutor, ManualExecutor
from aioinfer.runtime.graph import Model
from aioinfer.runtime.network.executable_network import ExecutableNetwork
from aioinfer.runtime.properties.properties import Configuration, Metric
from aioinfer.runtime.tracing.statistics import NetworkStatistics
from aioinfer.testing import MockDevices, MockPlugin
from unit.backends.hetero.small_graphs import arrays, graph

WAIT_S = 20.0  # a bound for what must happen; never slept through
MODEL = graph("a@0 = Relu(p)\nb@0 = Neg(a)", "b")
BOTH = "AUTO:FAST,SLOW"


class GatedPlugin(MockPlugin):
    """Compiles when it may, unless it fails; a test writes what it does."""

    kind = "cpu"
    gate: threading.Event
    compiled: list[str]
    error: Exception | None = None

    def metrics(self) -> Sequence[Metric]:
        return (Metric("DEVICE_TYPE", lambda _: self.kind, "What it is."),)

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        assert self.gate.wait(WAIT_S)
        self.compiled.append(self.name)
        if self.error is not None:
            raise self.error
        return super().compile_network(model, config)


class Devices:
    """FAST and FASTER, accelerators, and SLOW, a processor, which compute on the calling thread."""

    def __init__(self, core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plugins: dict[str, GatedPlugin] = {}
        self.mocks: dict[str, MockDevices] = {}
        self.compiled: list[str] = []
        self.times_s: dict[str, float | None] = {"FAST": 1.0, "FASTER": 0.5, "SLOW": 9.0}
        self.executor: Any = ImmediateExecutor("mock")
        for name, kind in (("FAST", "discrete"), ("FASTER", "discrete"), ("SLOW", "cpu")):
            core.register_plugin(name, self._maker(name, kind))
            core.get_metric(name, "FULL_DEVICE_NAME")

        def measured(network: ExecutableNetwork, *_: object) -> float | None:
            return self.times_s[self.name_of(network)]

        monkeypatch.setattr(executable_network, "measured_s", measured)

    def _maker(self, name: str, kind: str) -> Any:
        mocks = self.mocks[name] = MockDevices(1)
        mocks[0].name = f"{name}.0"
        mocks[0].held = mocks[0].executor = ManualExecutor(mocks[0].name)

        def make(handle: Any, plugin_name: str) -> MockPlugin:
            made = GatedPlugin(handle, plugin_name, mocks.devices)
            made.kind, made.gate, made.compiled = kind, threading.Event(), self.compiled
            made.gate.set()
            self.plugins[name] = made
            return made

        return make

    @staticmethod
    def name_of(network: ExecutableNetwork) -> str:
        return network.device.partition(".")[0]

    def held(self, name: str) -> int:
        return self.mocks[name][0].held.waiting_count

    def release(self, name: str) -> None:
        held = self.mocks[name][0].held
        held.release(held.waiting_count)

    def fail(self, name: str, error: BaseException | None) -> None:
        self.mocks[name][0].stage_fault = None if error is None else lambda stage: error


@pytest.fixture
def devices(core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    made = Devices(core, monkeypatch)
    yield made
    for plugin in made.plugins.values():
        plugin.gate.set()
    for name in made.plugins:
        made.release(name)


def start(network: aioinfer.ExecutableNetwork) -> aioinfer.InferRequest:
    request = network.create_infer_request()
    request.start_async(arrays())
    return request


def check(request: aioinfer.InferRequest) -> None:
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(request.results["b"], -np.maximum(arrays()["p"], 0))


def serve(devices: Devices, name: str, *requests: aioinfer.InferRequest) -> None:
    """Have a device do what it gets, which runs that move bring when they like, and check these."""

    def are_over() -> bool:
        devices.release(name)
        return all(request.wait(0.0) for request in requests)

    assert until(are_over)
    for request in requests:
        check(request)


async def test_the_processor_serves_until_the_accelerator_is_compiled(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    assert network.execution_devices == ("SLOW.0",)
    await network.ready("SLOW")
    assert "FAST: is being compiled" in network.explain()
    before = start(network)
    devices.plugins["FAST"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready("FAST")
        await network.ready()
    assert network.execution_devices == ("FAST.0",)
    after = start(network)
    assert (devices.held("SLOW"), devices.held("FAST")) == (1, 1)
    devices.release("FAST")
    check(after)
    devices.release("SLOW")
    check(before)
    statistics = network.statistics()
    assert statistics.finished_request_count == 2
    assert [(d.device, d.run_count, d.is_in_use) for d in statistics.devices] == [
        ("FAST", 1, True),
        ("SLOW", 1, False),
    ]
    assert "FAST: serves, measured 1e+03 ms" in network.explain()


async def test_a_device_that_was_measured_to_be_slower_does_not_take_over(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.times_s["FAST"] = 10.0
    network = core.load_network(MODEL, BOTH)
    async with asyncio.timeout(WAIT_S):
        await network.ready()
    assert network.execution_devices == ("SLOW.0",)
    assert "FAST: was slower when measured, measured 1e+04 ms" in network.explain()
    with pytest.raises(DeviceError, match="was slower when measured"):
        await network.ready("FAST")
    with pytest.raises(DeviceError, match="not among its devices"):
        await network.ready("CUDA")
    network.close()
    with pytest.raises(ClosedError):
        await network.ready("SLOW")


async def test_an_accelerator_that_cannot_compile_makes_place_for_the_next_one(
    core: aioinfer.Core, devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    devices.plugins["FASTER"].error = NotSupportedError("out of registers")
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        network = core.load_network(MODEL, "AUTO:FASTER,FAST,SLOW")
        async with asyncio.timeout(WAIT_S):
            await network.ready()
    assert network.execution_devices == ("FAST.0",)
    assert devices.compiled == ["SLOW", "FASTER", "FAST"]
    assert "FASTER cannot be loaded" in caplog.text
    with pytest.raises(DeviceError, match="out of registers"):
        await network.ready("FASTER")


def test_without_a_stand_in_the_load_waits_for_the_accelerator(
    core: aioinfer.Core, devices: Devices
) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    assert network.execution_devices == ("FAST.0",)
    assert devices.compiled == ["FAST"]


async def test_when_the_device_fails_another_one_goes_on_with_what_it_had(
    core: aioinfer.Core, devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    devices.plugins["SLOW"].gate.clear()
    requests = [start(network), start(network)]
    devices.fail("FAST", DeviceError("it fell off the bus"))
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        devices.release("FAST")
    requests.append(start(network))
    assert "waiting for a device" in repr(requests[2])
    devices.plugins["SLOW"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready("SLOW")
    serve(devices, "SLOW", *requests)
    fast, slow = network.statistics().devices
    assert (fast.failure_count, fast.moved_run_count, fast.is_in_use) == (1, 2, False)
    assert slow.run_count == 3
    assert devices.compiled == ["FAST", "SLOW"]
    assert "FAST has failed; SLOW is next" in caplog.text
    assert "failed on FAST" in {span.stage for span in network.trace()}
    assert "FAST: not used any more: it fell off the bus" in network.explain()


async def test_who_cancels_while_the_next_device_compiles_is_answered_at_once(
    core: aioinfer.Core, devices: Devices
) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    devices.plugins["SLOW"].gate.clear()
    request = start(network)
    devices.fail("FAST", DeviceError("lost"))
    devices.release("FAST")
    request.cancel()
    with pytest.raises(RequestCancelledError):
        request.wait(WAIT_S)
    devices.plugins["SLOW"].gate.set()


async def test_when_the_stand_in_fails_the_accelerator_gets_its_requests(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    request = start(network)
    devices.fail("SLOW", DeviceError("lost"))
    devices.release("SLOW")
    devices.plugins["FAST"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready("FAST")
    serve(devices, "FAST", request)


async def test_when_all_have_failed_the_caller_is_told_and_the_last_one_is_tried_again(
    core: aioinfer.Core, devices: Devices
) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    for name in ("FAST", "SLOW"):
        devices.fail(name, DeviceError(f"lost {name}"))
    request = start(network)
    devices.release("FAST")
    async with asyncio.timeout(WAIT_S):
        await network.ready("SLOW")
    with pytest.raises(DeviceError, match="lost SLOW"):
        serve(devices, "SLOW", request)
    devices.fail("SLOW", None)
    request = start(network)
    devices.release("SLOW")
    check(request)


async def test_if_the_next_one_cannot_be_loaded_all_callers_get_the_first_error(
    core: aioinfer.Core, devices: Devices
) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    devices.plugins["SLOW"].error = DeviceError("no memory")
    devices.plugins["SLOW"].gate.clear()
    lost = DeviceError("lost")
    devices.fail("FAST", lost)
    requests = [start(network)]
    devices.release("FAST")
    requests += [start(network), start(network)]
    assert all("waiting for a device" in repr(request) for request in requests)
    devices.plugins["SLOW"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready()
    raised = []
    for request in requests:
        with pytest.raises(DeviceError, match="lost") as caught:
            request.wait(WAIT_S)
        raised.append(caught.value)
    assert len(set(map(id, raised))) == 3, "each has an exception of its own"
    assert [error.__cause__ for error in raised[1:]] == [lost, lost]


def test_a_bad_request_moves_nothing(core: aioinfer.Core, devices: Devices) -> None:
    network = core.load_network(MODEL, BOTH, {"ENABLE_STARTUP_FALLBACK": False})
    devices.fail("FAST", TensorError("wrong"))
    request = start(network)
    devices.release("FAST")
    with pytest.raises(TensorError):
        request.wait(WAIT_S)
    assert network.execution_devices == ("FAST.0",)
    assert devices.compiled == ["FAST"]


def test_without_fallback_a_lost_device_is_told_of(core: aioinfer.Core, devices: Devices) -> None:
    config = {"ENABLE_STARTUP_FALLBACK": False, "ENABLE_RUNTIME_FALLBACK": False}
    network = core.load_network(MODEL, BOTH, config)
    assert network.device == "FAST.0"
    assert "chosen by AUTO" in network.explain()


def test_closing_while_a_device_compiles_gives_everything_back(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    request = start(network)
    devices.release("SLOW")
    check(request)
    network.abort()
    threading.Timer(0, devices.plugins["FAST"].gate.set).start()
    assert network.close(timeout_s=WAIT_S)
    assert not any(thread.name.startswith("aioinfer.AUTO") for thread in threading.enumerate())


def test_a_compiler_that_hangs_holds_no_close_up_and_what_it_makes_is_closed(
    core: aioinfer.Core, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable_network, "LOAD_WAIT_S", 0.0)
    gate = devices.plugins["FAST"].gate
    gate.clear()
    network = core.load_network(MODEL, BOTH)
    assert isinstance(network, executable_network.AutoNetwork)
    loading = [one for one in threading.enumerate() if one.name.startswith("aioinfer.AUTO")]
    assert network.close()
    assert [one.is_alive() for one in loading] == [True]
    gate.set()
    loading[0].join(WAIT_S)
    assert devices.compiled == ["SLOW", "FAST"]
    assert [candidate.network for candidate in network.candidates] == [None, None]


def test_no_request_is_lost_or_doubled_by_moves(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices fail at random while many threads ask; what is computed is counted."""
    devices = Devices(core, monkeypatch)
    computed: list[str] = []
    for name, mocks in devices.mocks.items():
        mocks[0].executor = ImmediateExecutor(name)
    network = core.load_network(MODEL, "AUTO:FASTER,FAST,SLOW", {"ENABLE_STARTUP_FALLBACK": False})

    def fault(stage: str) -> BaseException | None:
        computed.append(stage)
        return DeviceError("lost") if len(computed) in (100, 250) else None

    for mocks in devices.mocks.values():
        mocks[0].stage_fault = fault

    def ask() -> None:
        for _ in range(100):
            request = network.create_infer_request()
            request.start_async(arrays())
            check(request)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == 402
    statistics = network.statistics()
    assert statistics.finished_request_count == 400
    assert sum(used.run_count for used in statistics.devices) == 402


async def test_a_closed_network_goes_without_the_collector(
    core: aioinfer.Core, devices: Devices
) -> None:
    gc.collect()
    gc.disable()
    try:
        network = core.load_network(MODEL, BOTH)
        async with asyncio.timeout(WAIT_S):
            await network.ready("FAST")
        request = start(network)
        devices.fail("FAST", DeviceError("lost"))
        devices.release("FAST")
        async with asyncio.timeout(WAIT_S):
            await network.ready("SLOW")
        serve(devices, "SLOW", request)
        del request
        for mocks in devices.mocks.values():
            mocks[0].loaded.clear()
        network.close()
        gone = weakref.ref(network)
        del network
        assert gone() is None
    finally:
        gc.enable()


async def test_a_network_of_one_device_is_ready(core: aioinfer.Core) -> None:
    with core.load_network(MODEL, "REFERENCE.1") as network:
        await network.ready()
        await network.ready("REFERENCE")
        await network.ready("REFERENCE.1")
        with pytest.raises(DeviceError, match=r"served by REFERENCE\.1 and by no CUDA"):
            await network.ready("CUDA")
    with pytest.raises(ClosedError):
        await network.ready()


async def test_who_waits_and_is_cancelled_leaves_nothing_behind(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    task = asyncio.ensure_future(network.ready("FAST"))
    await asyncio.sleep(0)
    assert isinstance(network, executable_network.AutoNetwork)
    assert len(network._told) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert network._told == []
    devices.plugins["FAST"].gate.set()


async def test_a_device_that_fails_while_a_stand_in_is_closed_has_that_loaded_again(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    before = start(network)  # keeps SLOW from being closed
    devices.plugins["FAST"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready("FAST")
    assert isinstance(network, executable_network.AutoNetwork)
    stand_in = network._closing
    assert await asyncio.to_thread(until, lambda: len(stand_in) == 1)
    devices.fail("FAST", DeviceError("lost"))
    moved = start(network)
    devices.release("FAST")
    async with asyncio.timeout(WAIT_S):
        await network.ready("SLOW")
    assert network.execution_devices == ("SLOW.0",)
    later = start(network)
    assert await asyncio.to_thread(until, lambda: devices.held("SLOW") == 3)
    devices.release("SLOW")
    for request in (before, moved, later):
        await asyncio.to_thread(check, request)


async def test_runs_that_wait_go_on_where_the_first_of_them_has_failed(
    core: aioinfer.Core, devices: Devices
) -> None:
    config = {"ENABLE_RUNTIME_FALLBACK": True}
    network = core.load_network(MODEL, "AUTO:FASTER,FAST,SLOW", config)
    async with asyncio.timeout(WAIT_S):
        await network.ready("FASTER")
        await network.ready()
    assert isinstance(network, executable_network.AutoNetwork)
    candidates = network.candidates
    assert await asyncio.to_thread(until, lambda: candidates[2].network is None)
    for name in ("FASTER", "FAST"):
        devices.mocks[name][0].stage_fault = lambda stage: DeviceError("lost")
    for plugin in devices.plugins.values():
        plugin.gate.clear()
    requests = [start(network) for _ in range(5)]
    devices.release("FASTER")
    assert await asyncio.to_thread(until, lambda: len(network._parked) >= 1)
    for plugin in devices.plugins.values():
        plugin.gate.set()

    def answered() -> bool:
        for name in devices.plugins:
            devices.release(name)
        return all(request.wait(0) for request in requests)

    assert await asyncio.to_thread(until, answered)
    for request in requests:
        check(request)
    assert await asyncio.to_thread(network.close, timeout_s=WAIT_S)


async def test_what_a_device_did_stays_in_the_numbers_when_it_is_closed(
    core: aioinfer.Core, devices: Devices
) -> None:
    devices.plugins["FAST"].gate.clear()
    network = core.load_network(MODEL, BOTH)
    requests = [start(network), start(network)]
    devices.release("SLOW")
    requests.append(start(network))  # keeps SLOW from being closed
    before = network.statistics()
    devices.plugins["FAST"].gate.set()
    async with asyncio.timeout(WAIT_S):
        await network.ready("FAST")
    assert isinstance(network, executable_network.AutoNetwork)
    candidates = network.candidates
    assert await asyncio.to_thread(until, lambda: candidates[1].network is None)
    assert counts(network.statistics()) == counts(before)
    devices.release("SLOW")
    assert await asyncio.to_thread(until, lambda: not network._closing)
    after = network.statistics()
    assert counts(after) == {**counts(before), ("compute", "SLOW.0"): 3}
    gone = next(part for part in after.parts if part.device == "SLOW.0")
    assert gone.slot_wait.count == 3
    assert gone.running_run_count == gone.waiting_run_count == 0
    devices.fail("FAST", DeviceError("lost"))  # and SLOW is loaded again
    requests += [start(network), start(network)]
    devices.release("FAST")
    async with asyncio.timeout(WAIT_S):
        await network.ready("SLOW")
    serve(devices, "SLOW", *requests)
    statistics = network.statistics()
    assert counts(statistics)["compute", "SLOW.0"] == 5
    labels = [(part.device, part.copy) for part in statistics.parts]
    assert len(labels) == len(set(labels)), "each series of a scrape is there once"
    network.close()
    assert counts(network.statistics())["compute", "SLOW.0"] == 5


def counts(statistics: NetworkStatistics) -> dict[tuple[str, str], int]:
    places = [(stage.stage, stage.executor) for stage in statistics.stages]
    assert len(places) == len(set(places)), "each series of a scrape is there once"
    assert all(stage.count == stage.service.count for stage in statistics.stages)
    return {(stage.stage, stage.executor): stage.count for stage in statistics.stages}


def test_a_closed_network_tells_what_there_was(core: aioinfer.Core, devices: Devices) -> None:
    network = core.load_network(MODEL, BOTH)
    network.close()
    assert "AUTO moves between devices" in network.explain()
    with pytest.raises(ClosedError):
        network.runtime_graph()


def until(holds: Callable[[], bool]) -> bool:
    """Look again and again, as other threads work; False after a bound."""
    bound_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not holds():
        if time.monotonic() > bound_s:
            return False
        pause.wait(0.002)
    return True
