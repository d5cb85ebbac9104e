"""Mock devices fail when they are told to, where real ones do, and their requests live on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import aioinfer
from aioinfer.executors import ImmediateExecutor
from aioinfer.testing import DeviceThread, Fault, ManualStreams, MockDevice, MockDevices
from unit.runtime.held_runs import X, started
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0


class LostError(Exception):
    pass


def once_in(stage: str) -> Fault:
    """Fail the first time that this stage comes."""
    failures = [LostError(stage)]
    return lambda name: failures.pop() if name == stage and failures else None


@pytest.fixture
def immediate(core: aioinfer.Core) -> MockDevice:
    devices = MockDevices(1, executor=ImmediateExecutor("now"))
    core.register_plugin("NOW", devices.make_plugin)
    return devices[0]


@pytest.mark.parametrize("kind", ["stage_fault", "device_fault"])
def test_a_fault_fails_one_run_and_the_next_is_clean(
    core: aioinfer.Core, immediate: MockDevice, kind: str
) -> None:
    network = core.load_network(tiny_model(), "NOW")
    setattr(immediate, kind, once_in("compute"))
    request = network.create_infer_request()
    with pytest.raises(LostError, match="compute"):
        request.infer_sync(X)
    np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))
    assert network.statistics().failed_request_count == 1


def load(core: aioinfer.Core, device: str) -> aioinfer.ExecutableNetwork:
    split = {"AFFINITY": {"relu": "GOING.0", "add": "GOING.1"}}
    return core.load_network(tiny_model(), device, split if device.startswith("HETERO") else {})


@pytest.fixture
def going(core: aioinfer.Core) -> Iterator[MockDevices]:
    """GOING.0 and GOING.1: streamed devices that go on by themselves."""
    devices = MockDevices(2, is_streamed=True)
    core.register_plugin("GOING", devices.make_plugin)
    with DeviceThread([fake_of(device) for device in devices.devices]):
        yield devices
        core.close()


def fake_of(device: MockDevice) -> ManualStreams:
    assert device.streams is not None
    return device.streams


@pytest.mark.parametrize("stage", ["upload", "compute", "download"])
@pytest.mark.parametrize("kind", ["stage_fault", "device_fault"])
@pytest.mark.parametrize("target", ["GOING", "HETERO:GOING.0,GOING.1"])
def test_a_fault_of_any_stage_on_a_stream_fails_one_run(
    core: aioinfer.Core, going: MockDevices, target: str, kind: str, stage: str
) -> None:
    network = load(core, target)
    setattr(going[0], kind, once_in(stage))
    request = network.create_infer_request()
    with pytest.raises(LostError, match=stage):
        request.infer_sync(X)
    np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("target", ["GOING", "HETERO:GOING.0,GOING.1"])
def test_a_dead_device_fails_every_run_and_holds_up_no_close(
    core: aioinfer.Core, going: MockDevices, target: str, dead: int
) -> None:
    if target == "GOING":
        target = f"GOING.{dead}"
    going[dead].device_fault = lambda stage: LostError(stage)
    with load(core, target) as network:
        requests = started(network, 5)
        for request in requests:
            with pytest.raises(LostError, match="upload"):
                request.wait(WAIT_S)
    statistics = network.statistics()
    assert statistics.failed_request_count == 5
    assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)


def test_runs_in_two_slots_never_mix_their_commands_on_a_stream(
    core: aioinfer.Core, streamed: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "STREAMED")
    fake, second = fake_of(streamed[0]), network.create_infer_request()
    has_come: list[str] = []

    def start_another(stage: str) -> None:
        if not has_come:  # the first upload is enqueued, and its event is not
            has_come.append(stage)
            thread = threading.Thread(target=second.start_async, args=(X,))
            thread.start()
            thread.join()

    streamed[0].stage_fault = start_another
    first = network.create_infer_request()
    first.start_async(X)
    assert [line for line in fake.enqueued if line.startswith("upload:")] == [
        "upload: upload",
        "upload: record upload#1",
        "upload: upload",
        "upload: record upload#2",
    ]
    fake.fire_all()
    assert first.wait(WAIT_S)
    assert second.wait(WAIT_S)
