"""What the runtime does reaches the wire: deadlines, refusals, clients that leave, numbers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.serving import Limits, app
from aioinfer.serving.inference import Inference
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.web.application import application
from aioinfer.testing import MockDevice, MockDevices, VirtualTimer
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import scaled

X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
INFER = "/v2/models/held/infer"


class Held:
    """A network with one slot, on a device that computes when the test says so."""

    def __init__(self, device: MockDevice, network: aioinfer.ExecutableNetwork) -> None:
        self.device, self.network = device, network
        self.client = AsgiClient(app(network))

    async def until(self, condition: Callable[[aioinfer.NetworkStatistics], bool]) -> None:
        while not condition(self.network.statistics()):
            await checkpoint()

    def release(self) -> None:
        """Have the device compute what it holds, if it holds anything."""
        if self.device.held.waiting_count:
            self.device.held.release()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    devices = MockDevices(1)
    devices[0].slot_count = 1
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        path = scaled(tmp_path / "held.onnx", 2.0)
        network = core.load_network(path, "MOCK", {"MAX_QUEUED_REQUESTS": 1})
        yield Held(devices[0], network)
        while network.statistics().running_run_count:
            if devices[0].held.waiting_count:
                devices[0].held.release()
        network.close()


async def test_a_timeout_is_504(held: Held) -> None:
    body = {"inputs": [X], "parameters": {"timeout": 1000}}
    reply = await held.client.post(INFER, body)
    assert reply.status == 504
    assert held.network.statistics().expired_request_count == 1


async def test_one_too_many_is_503_at_once(held: Held) -> None:
    body = {"inputs": [X]}
    first = asyncio.ensure_future(held.client.post(INFER, body))
    await held.until(lambda now: now.running_run_count == 1)
    second = asyncio.ensure_future(held.client.post(INFER, body))
    await held.until(lambda now: now.waiting_run_count == 1)
    third = await held.client.post(INFER, body)
    assert (third.status, third.headers["retry-after"]) == (503, "1")
    while not (first.done() and second.done()):
        held.release()
        await checkpoint()
    assert first.result().json()["outputs"][0]["data"] == [2, 4, 6]
    assert second.result().status == 200


async def test_what_is_more_urgent_goes_first(tmp_path: Path) -> None:
    devices = MockDevices(1)
    devices[0].slot_count = 1
    order: list[int] = []
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(scaled(tmp_path / "held.onnx", 2.0), "MOCK")
        held = Held(devices[0], network)

        async def ask(level: int) -> None:
            body = {"inputs": [X], "parameters": {"priority": level}}
            assert (await held.client.post(INFER, body)).status == 200
            order.append(level)

        calls = [asyncio.ensure_future(ask(5))]
        await held.until(lambda now: now.running_run_count == 1)
        for level in (9, 8, 1, 3):
            calls.append(asyncio.ensure_future(ask(level)))
            await held.until(lambda now: now.waiting_run_count == len(calls) - 1)
        while not all(call.done() for call in calls):
            held.release()
            await checkpoint()
    assert order == [5, 1, 3, 8, 9]


async def test_requests_that_share_a_run_are_counted_as_such(tmp_path: Path) -> None:
    with aioinfer.Core() as core:
        path = scaled(tmp_path / "held.onnx", 2.0)
        network = core.load_network(path, "BATCH:REFERENCE(4)", {"AUTO_BATCH_TIMEOUT": 60_000})
        client = AsgiClient(app(network))
        replies = await asyncio.gather(*(client.post(INFER, {"inputs": [X]}) for _ in range(4)))
        assert [reply.json()["outputs"][0]["data"] for reply in replies] == [[2, 4, 6]] * 4
        (entry,) = (await client.get("/v2/models/held/stats")).json()["model_stats"]
        assert (entry["inference_count"], entry["execution_count"]) == (4, 1)
        metrics = (await client.get("/metrics")).body.decode()
        assert 'nv_inference_exec_count{model="held",version="1"} 1.0' in metrics


@pytest.mark.parametrize("waits", [False, True])
async def test_a_client_that_leaves_ends_its_request(held: Held, waits: bool) -> None:
    body = json.dumps({"inputs": [X]}).encode()
    others = []
    if waits:  # it is in the queue when its client goes
        others.append(asyncio.ensure_future(held.client.post(INFER, body)))
        await held.until(lambda now: now.running_run_count == 1)
    leave = asyncio.Event()
    call = asyncio.ensure_future(held.client.send("POST", INFER, [body], {}, leave))
    await held.until(lambda now: now.running_run_count + now.waiting_run_count == 1 + waits)
    leave.set()
    assert (await call).status == 499
    assert held.network.statistics().cancelled_request_count == 1
    while not all(other.done() for other in others):
        held.release()
        await checkpoint()


async def test_a_server_that_ends_cancels_what_runs(held: Held) -> None:
    call = asyncio.ensure_future(held.client.post(INFER, {"inputs": [X]}))
    await held.until(lambda now: now.running_run_count == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await held.until(lambda now: now.cancelled_request_count == 1)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_what_the_end_of_a_server_cuts_off_is_503(held: Held) -> None:
    inference = Inference(FixedRepository(held.network), Limits())
    held.client = AsgiClient(application(inference, is_ending=lambda: True))
    call = asyncio.ensure_future(held.client.post(INFER, {"inputs": [X]}))
    await held.until(lambda now: now.running_run_count == 1)
    call.cancel()
    reply = await call
    assert (reply.status, reply.error) == (503, "the server ends")
    await held.until(lambda now: now.cancelled_request_count == 1)


async def test_the_servers_own_fault_is_a_number(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    held.device.device_fault = lambda stage: RuntimeError("/secret/path")
    call = asyncio.ensure_future(held.client.post(INFER, {"inputs": [X]}))
    while not call.done():
        held.release()
        await checkpoint()
    reply = call.result()
    assert reply.status == 500
    assert "secret" not in reply.error
    assert "its log has this as error" in reply.error
    assert "/secret/path" in caplog.text


async def test_statistics_and_metrics_count_requests(held: Held) -> None:
    held.client = AsgiClient(app(held.network))
    clock = held.network.clock = VirtualTimer()
    body = {"inputs": [X], "parameters": {"timeout": 1000}}
    expired = asyncio.ensure_future(held.client.post(INFER, body))
    while not held.device.held.waiting_count:
        await checkpoint()
    clock.advance(0.002)
    assert (await expired).status == 504
    held.device.held.release()
    for _ in range(2):
        call = asyncio.ensure_future(held.client.post(INFER, {"inputs": [X]}))
        while not call.done():
            held.release()
            await checkpoint()
        assert call.result().status == 200
    for path in ("/v2/models/stats", "/v2/models/held/stats", "/v2/models/held/versions/1/stats"):
        (entry,) = (await held.client.get(path)).json()["model_stats"]
        assert (entry["name"], entry["version"]) == ("held", "1")
        assert (entry["inference_count"], entry["execution_count"]) == (2, 2)
        assert entry["inference_stats"]["success"]["count"] == 2
        assert entry["inference_stats"]["fail"]["count"] == 1
        assert entry["inference_stats"]["success"]["ns"] > 0
        assert entry["last_inference"] > 0
    assert (await held.client.get("/v2/models/other/stats")).status == 404
    reply = await held.client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.body.decode().splitlines()
    assert 'nv_inference_request_success{model="held",version="1"} 2.0' in lines
    assert 'nv_inference_request_failure{model="held",version="1"} 1.0' in lines
    assert 'nv_inference_count{model="held",version="1"} 2.0' in lines
    assert 'nv_inference_pending_request_count{model="held",version="1"} 0.0' in lines
    assert 'aioinfer_model_ready{model="held",version="1"} 1.0' in lines
