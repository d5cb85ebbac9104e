"""What runs leave behind: nothing. Objects, slots and threads are back where they were."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from weakref import ref

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeadlineExceededError, RequestCancelledError
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.models import tiny_model

X = np.array([[-1, 2, 3]], np.float32)
AFFINITY = {"AFFINITY": {"relu": "REFERENCE.0", "add": "REFERENCE.1"}}
DEVICES = [("REFERENCE", {}), ("HETERO:REFERENCE.0,REFERENCE.1", AFFINITY)]


@pytest.fixture(params=DEVICES, ids=lambda device: device[0])
def network(core: aioinfer.Core, request: pytest.FixtureRequest) -> aioinfer.ExecutableNetwork:
    device, config = request.param
    return core.load_network(tiny_model(), device, config)


def our_objects() -> Counter[str]:
    gc.collect()
    names = (f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.get_objects())
    return Counter(name for name in names if name.startswith("aioinfer."))


@pytest.mark.usefixtures("no_collector")
def test_arrays_of_the_pool_are_free_as_soon_as_nobody_uses_them(
    network: aioinfer.ExecutableNetwork,
) -> None:
    async def once() -> list[ref[np.ndarray]]:
        x = X.copy()
        outputs = await network.infer({"x": x})
        return [ref(x), ref(outputs["y"])]

    arrays = asyncio.run(once())
    network.close()  # the thread that answered may not have left its frames yet; now it has
    assert [alive() for alive in arrays] == [None, None]


@pytest.mark.usefixtures("no_collector")
def test_a_request_lets_go_of_its_inputs_when_a_run_has_ended(
    network: aioinfer.ExecutableNetwork,
) -> None:
    request = network.create_infer_request()
    x = X.copy()
    alive = ref(x)
    request.start_async({"x": x})
    del x
    request.wait()
    first = ref(request.results["y"])
    request.infer_sync(X)
    network.close()
    assert alive() is None
    assert first() is None, "the results of the run before the last"


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", ["cancel", "deadline", "error"])
def test_a_run_without_a_result_lets_go_too(
    core: aioinfer.Core, held: MockDevices, ending: str
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    x = X.copy()
    alive = ref(x)
    request.start_async({"x": x}, deadline_s=0.0 if ending == "deadline" else 3600.0)
    del x
    if ending == "cancel":
        request.cancel()
        assert alive() is not None, "the device may still read it"
    if ending == "error":
        held[0].held.fail(ValueError("planted"))
    elif held[0].held.waiting_count:
        held[0].held.release()
    with pytest.raises((RequestCancelledError, DeadlineExceededError, ValueError)):
        request.wait()
    assert alive() is None


def test_two_hundred_runs_leave_no_objects_and_no_threads(
    network: aioinfer.ExecutableNetwork,
) -> None:
    async def batch() -> None:
        tasks = [asyncio.create_task(network.infer(X)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::4]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def many(count: int) -> None:
        for _ in range(count):
            await batch()
            with pytest.raises(DeadlineExceededError):
                await network.infer(X, deadline_s=0.0)

    def quiet() -> tuple[Counter[str], set[threading.Thread], int]:
        waiting = network.create_infer_request()
        waiting.infer_sync(X)  # every slot was free, or will be when this one is
        while network.statistics().running_run_count:
            pass
        del waiting
        return our_objects(), set(threading.enumerate()), len(network.admission._idle)

    asyncio.run(many(2))
    objects, threads, slots = quiet()
    asyncio.run(many(10))
    objects_after, threads_after, slots_after = quiet()
    pool = "aioinfer.runtime.network.infer_request.InferRequest"
    grown = {
        name: count - objects[name]
        for name, count in objects_after.items()
        if count > objects[name] and name != pool
    }
    assert grown == {}
    grown_pool = objects_after[pool] - objects[pool]
    assert grown_pool <= 21, "the pool is as large as what was in flight at once"
    assert threads_after <= threads, "a thread of another test may end meanwhile, none may begin"
    assert slots_after == slots == network.admission.slot_count


def test_polling_wait_piles_nothing_up(core: aioinfer.Core, held: MockDevices) -> None:
    request = core.load_network(tiny_model(), "MOCK.0").create_infer_request()
    request.start_async(X)
    for _ in range(100):
        assert request.wait(0) is False
        assert request.wait(1e-9) is False
    assert request._run is not None
    assert request._run._ended == []
    held[0].held.release()
    assert request.wait()


def test_raising_a_stored_error_again_and_again_does_not_grow_it(
    core: aioinfer.Core, held: MockDevices
) -> None:
    request = core.load_network(tiny_model(), "MOCK.0").create_infer_request()
    request.start_async(X)
    held[0].held.fail(ValueError("planted"))
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="planted") as raised:
            request.wait()
        depths.append(len(raised.traceback))
    assert depths[0] == depths[1] == depths[2]


def test_a_request_nobody_holds_is_gone(network: aioinfer.ExecutableNetwork) -> None:
    request = network.create_infer_request()
    request.infer_sync(X)
    alive = ref(request)
    del request
    gc.collect()
    assert alive() is None


def test_the_alarm_of_a_run_in_time_is_dropped(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    clock = network.clock = VirtualTimer()
    request = network.create_infer_request()
    request.start_async(X, deadline_s=5.0)
    held[0].held.release()
    clock.advance(10.0)
    assert request.wait()
    assert repr(clock) == "<VirtualTimer at 10.0 s, 0 set>"
