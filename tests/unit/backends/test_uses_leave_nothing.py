"""What networks leave that were used in all ways and closed, with the collector off: no object."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trio
from onnx import parser

from aioinfer import AsyncInferQueue, Core, ExecutableNetwork, errors
from aioinfer.executors import TimerHandle
from exhaustive import all_but

pytestmark = pytest.mark.usefixtures("no_collector")

MODEL = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    sums (float[batch,3] x, float[batch,3] past) => (float[batch,3] y, float[batch,3] present) {
        present = Add (past, x)
        y = Relu (present)
    }
""")
X = np.ones((1, 3), np.float32)
BOTH = {"x": X, "past": X}
STATE = {"STATE": {"past": "present"}}
WARM_ROUNDS, ROUNDS = 3, 8


def runs_with_state(network: ExecutableNetwork) -> None:
    request = network.create_infer_request()
    for _ in range(3):
        request.infer_sync({"x": X})
    request.query_state()[0].state = X
    with pytest.raises(errors.TensorError):
        request.infer_sync({"x": np.ones((1, 4), np.float32)})
    request.reset_state()


def runs_side_by_side(network: ExecutableNetwork) -> None:
    requests = [network.create_infer_request() for _ in range(6)]
    for request in requests:
        request.start_async(BOTH, deadline_s=60.0)
    requests[0].cancel()
    for request in requests[1:]:
        assert request.wait(60.0)


def runs_once(network: ExecutableNetwork) -> None:
    network.create_infer_request().infer_sync(BOTH)


def runs_and_reads_there(network: ExecutableNetwork) -> None:
    request = network.create_infer_request()
    kept = request.infer_sync(BOTH)["y"]
    request.infer_sync({"x": kept, "past": X})


def queue_of_callbacks(network: ExecutableNetwork) -> None:
    queue = AsyncInferQueue(network, jobs=3)
    seen: list[Any] = []
    queue.set_callback(lambda request, number: seen.append((number, request.results["y"])))
    for number in range(9):
        queue.start_async(BOTH, number)
    queue.wait_all()
    assert len(seen) == 9


def queue_of_failures(network: ExecutableNetwork) -> None:
    queue = AsyncInferQueue(network, jobs=2)

    def fail(*_: Any) -> None:
        raise ValueError("a callback's own")

    queue.set_callback(fail)
    for number in range(4):
        queue.start_async(BOTH, number)
    assert refused(queue.wait_all) is ExceptionGroup


def callbacks_of_requests(network: ExecutableNetwork) -> None:
    requests = [network.create_infer_request() for _ in range(3)]
    for request in requests:
        request.set_callback(lambda request, error: None)
        request.start_async(BOTH)
    for request in requests:
        assert request.wait(60.0)


async def _callbacks_on_a_loop(network: ExecutableNetwork, loop: Any) -> None:
    seen: list[int] = []

    async def store(request: Any, number: int) -> None:
        seen.append(number)

    queue = AsyncInferQueue(network, jobs=2)
    queue.set_callback(store, loop)
    for number in range(4):
        await queue.start(BOTH, number)
    await queue.wait_all_async()
    assert sorted(seen) == [0, 1, 2, 3]
    await network.infer(BOTH)


def callbacks_on_asyncio(network: ExecutableNetwork) -> None:
    async def main() -> None:
        await _callbacks_on_a_loop(network, asyncio.get_running_loop())

    asyncio.run(main())


def callbacks_on_trio(network: ExecutableNetwork) -> None:
    async def main() -> None:
        await _callbacks_on_a_loop(network, trio.lowlevel.current_trio_token())

    trio.run(main)


def runs_parked_on_a_plan(network: ExecutableNetwork) -> None:
    """End runs whose plan is not there yet: cancelled, late, and closed with the network."""
    requests = [network.create_infer_request() for _ in range(4)]
    for rows, request in enumerate(requests, start=2):
        taken = np.ones((rows, 3), np.float32)
        request.start_async({"x": taken, "past": taken}, deadline_s=1e-4 if rows == 3 else None)
    requests[0].cancel()
    network.close()
    for request in requests:
        assert refused(request.wait, 60.0) in ENDINGS
        assert refused(request.infer_sync, BOTH) is errors.ClosedError


ENDINGS = (None, errors.RequestCancelledError, errors.DeadlineExceededError, errors.ClosedError)


def refused(call: Callable[..., Any], *arguments: Any) -> type[BaseException] | None:
    """Name what is raised. The traceback of a run's error keeps the frames that it went through."""
    try:
        call(*arguments)
    except Exception as error:
        return type(error)
    finally:
        del call, arguments
    return None


async def _streamed(network: ExecutableNetwork) -> None:
    async def source() -> Any:
        for _ in range(5):
            yield BOTH

    async for _ in network.stream(source()):
        pass
    rest = network.stream(source())
    await anext(rest)
    await rest.aclose()


def streams(network: ExecutableNetwork) -> None:
    asyncio.run(_streamed(network))


FUNCTIONS: dict[str, Any] = {
    "preprocess": lambda given: {"x": given["image"], "past": given["image"]},
    "postprocess": lambda outputs: outputs["y"].sum(),
}


def runs_with_functions(network: ExecutableNetwork) -> None:
    request = network.create_infer_request()
    request.infer_sync({"image": X})
    assert refused(request.infer_sync, {"nothing": X}) is KeyError
    asyncio.run(_awaited({"image": X}, network))


async def _awaited(given: Any, network: ExecutableNetwork) -> None:
    await network.infer(given)
    task = asyncio.create_task(network.infer({"nothing": X}))
    await asyncio.wait([task])
    assert type(task.exception()) is KeyError


Use = Callable[[ExecutableNetwork], None]
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], Use]] = {
    "a state": ("CPU", STATE, {}, runs_with_state),
    "a state on REFERENCE": ("REFERENCE", STATE, {}, runs_with_state),
    "BATCH": ("BATCH:CPU", {}, {}, runs_side_by_side),
    "functions": ("CPU", {}, FUNCTIONS, runs_with_functions),
    "functions with threads": ("CPU", {"POSTPROCESS_STREAMS": 1}, FUNCTIONS, runs_with_functions),
    "outputs on the device": (
        "OPENCL",
        {"OUTPUT_LOCATION": {"y": "DEVICE"}},
        {},
        runs_and_reads_there,
    ),
    "a queue": ("CPU", {}, {}, queue_of_callbacks),
    "a queue of failures": ("CPU", {}, {}, queue_of_failures),
    "callbacks": ("CPU", {}, {}, callbacks_of_requests),
    "callbacks on asyncio": ("CPU", {}, {}, callbacks_on_asyncio),
    "callbacks on trio": ("CPU", {}, {}, callbacks_on_trio),
    "parked runs": ("CPU", {}, {}, runs_parked_on_a_plan),
    "streams": ("CPU", {}, {}, streams),
    "HETERO": (
        "HETERO:CPU,REFERENCE",
        {},
        {},
        runs_side_by_side,
    ),
    "ONNXRUNTIME": ("ONNXRUNTIME", {}, {}, runs_side_by_side),
}


GRAPHS = "aioinfer.runtime.graph."
"""What a graph is made of refers to each other, so it is the collector's; its weights are not."""


class Alive:
    """What is alive of this package, by type, and what the process has of the system."""

    def __init__(self) -> None:
        # A cancelled alarm holds nothing, and is swept with others: how many wait for that varies.
        kinds = (
            type(item)
            for item in gc.get_objects()
            if type(item) is not TimerHandle or item.is_pending
        )
        names = Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        self.objects = {
            name: count
            for name, count in names.items()
            if name.startswith("aioinfer.") and not name.startswith(GRAPHS)
        }
        self.thread_count = threading.active_count()
        self.file_count = len(os.listdir("/proc/self/fd"))

    def more_than(self, before: Alive, rounds: int) -> dict[str, int]:
        """Tell what each of the rounds has left."""
        now = {**self.objects, "thread": self.thread_count, "file": self.file_count}
        then = {**before.objects, "thread": before.thread_count, "file": before.file_count}
        grown = {name: count - then.get(name, 0) for name, count in now.items()}
        return {name: count for name, count in grown.items() if count >= rounds}


def left_by(one_round: Callable[[], None]) -> dict[str, int]:
    for _ in range(WARM_ROUNDS):
        one_round()
    before = Alive()
    for _ in range(ROUNDS):
        one_round()
    return Alive().more_than(before, ROUNDS)


@pytest.mark.parametrize("name", all_but(["a state", "BATCH", "a queue", "parked runs"], CASES))
def test_a_network_that_was_used_and_closed_leaves_nothing(
    core: Core, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The record of a callback that fails holds its traceback, and pytest holds the records.
    caplog.set_level(logging.CRITICAL, logger="aioinfer")
    device, config, functions, use = CASES[name]
    if device == "OPENCL" and not any(item.startswith(device) for item in core.available_devices):
        pytest.skip("OPENCL is not here")

    def one_round() -> None:
        network = core.load_network(MODEL, device, config, **functions)
        use(network)
        network.close()

    assert left_by(one_round) == {}


def test_a_core_that_was_used_and_closed_leaves_nothing() -> None:
    def one_round() -> None:
        with Core() as core:
            network = core.load_network(MODEL, "CPU", STATE)
            runs_with_state(network)
            runs_side_by_side(core.load_network(MODEL, "BATCH:CPU"))
            callbacks_on_asyncio(core.load_network(MODEL, "CPU"))

    assert left_by(one_round) == {}
