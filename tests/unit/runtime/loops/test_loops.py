"""One network, used from several event loops and threads at once, and from none."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.errors import TensorError
from aioinfer.testing import MockDevices
from pending_tasks import expect_pending
from unit.runtime.models import expected, tiny_model

X = np.array([[-1, 2, 3]], np.float32)
WAIT_S = 20.0
T = TypeVar("T")
MakeLoop = Callable[[], asyncio.AbstractEventLoop]
MAKE_LOOPS: list[MakeLoop] = [asyncio.new_event_loop]
if sys.platform != "win32":
    import uvloop

    MAKE_LOOPS.append(uvloop.new_event_loop)


class LoopThread:
    """An event loop that turns on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it as a task, and return when it waits for the first time."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(WAIT_S)
        return future

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def loops() -> Iterator[list[LoopThread]]:
    made = [LoopThread(), LoopThread()]
    yield made
    for loop in made:
        loop.close()


def test_each_loop_gets_its_own_answer_in_any_order(
    core: aioinfer.Core, held: MockDevices, loops: list[LoopThread]
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    answers = [loop.start(network.infer(X + number)) for number, loop in enumerate(loops)]
    held[0].held.release(2)
    for number, answer in reversed(list(enumerate(answers))):
        np.testing.assert_array_equal(answer.result(WAIT_S)["y"], expected(X + number))


def test_a_slot_freed_by_one_loop_starts_the_run_of_another(
    core: aioinfer.Core, held: MockDevices, loops: list[LoopThread]
) -> None:
    held[0].slot_count = 1
    network = core.load_network(tiny_model(), "MOCK.0")
    answers = [loop.start(network.infer(X + number)) for number, loop in enumerate(loops)]
    assert network.statistics().waiting_run_count == 1
    held[0].held.release()
    assert held[0].held.waiting_count == 1, "on this thread, and no loop was asked"
    held[0].held.release()
    for number, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.result(WAIT_S)["y"], expected(X + number))


@pytest.mark.parametrize("make_loop", MAKE_LOOPS)
def test_a_loop_closed_amid_its_runs_holds_up_no_slot_and_no_other_loop(
    core: aioinfer.Core, held: MockDevices, make_loop: MakeLoop
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    gone, other = make_loop(), LoopThread()
    tasks = [gone.create_task(network.infer(X)) for _ in range(3)]  # one has to wait
    gone.run_until_complete(asyncio.sleep(0))
    answer = other.start(network.infer(X + 1))
    gone.close()
    held[0].held.release(3)
    assert not answer.done()
    held[0].held.release()
    np.testing.assert_array_equal(answer.result(WAIT_S)["y"], expected(X + 1))
    other.close()
    statistics = network.statistics()
    assert statistics.finished_request_count == 4
    assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)
    expect_pending(tasks)


def test_a_device_that_dies_answers_everybody_and_serves_again_when_it_is_back(
    core: aioinfer.Core, streamed: MockDevices, loops: list[LoopThread]
) -> None:
    network = core.load_network(tiny_model(), "STREAMED.0")
    device, told = streamed[0], []
    fake = device.streams
    assert fake is not None
    request = network.create_infer_request()
    request.set_callback(lambda _request, error: told.append(error))

    def start_everywhere() -> list[Future[dict[str, np.ndarray]]]:
        answers = [loop.start(network.infer(X)) for loop in (*loops, *loops)]
        request.start_async(X)
        return answers

    answers = start_everywhere()
    assert network.statistics().waiting_run_count == 3
    lost = OSError("fell off the bus")
    device.device_fault = lambda _stage: lost
    fake.fire_all()
    for answer in answers:
        assert answer.exception(WAIT_S) is lost
    with pytest.raises(OSError, match="fell off the bus"):
        request.wait(WAIT_S)
    assert told == [lost]
    device.device_fault = None
    answers = start_everywhere()
    fake.fire_all()
    for answer in answers:
        np.testing.assert_array_equal(answer.result(WAIT_S)["y"], expected(X))
    assert request.wait(WAIT_S)
    assert told == [lost, None]
    statistics = network.statistics()
    assert (statistics.failed_request_count, statistics.finished_request_count) == (5, 5)


async def test_bad_items_among_good_ones_fail_alone(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    items: list[Any] = [X, X.astype(np.float64), X + 1, None, {"z": X}, X[0], [X, X], X + 2]
    tasks = [asyncio.create_task(network.infer(item)) for item in items]
    await asyncio.sleep(0)
    while held[0].held.waiting_count:
        held[0].held.release()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    good = [answer for answer in answers if isinstance(answer, dict)]
    assert [type(answer) for answer in answers].count(TensorError) == 5
    assert len(good) == 3
    for number, answer in enumerate(good):
        np.testing.assert_array_equal(answer["y"], expected(X + number))
    statistics = network.statistics()
    assert (statistics.finished_request_count, statistics.failed_request_count) == (3, 0)


def test_asyncio_and_trio_share_a_network(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    answers: dict[str, list[np.ndarray]] = {"asyncio": [], "trio": []}

    async def use(name: str) -> None:
        for number in range(20):
            answers[name].append((await network.infer(X + number))["y"])

    threads = [
        threading.Thread(target=lambda: asyncio.run(use("asyncio"))),
        threading.Thread(target=lambda: trio.run(use, "trio")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outputs in answers.values():
        for number, output in enumerate(outputs):
            np.testing.assert_array_equal(output, expected(X + number))
        assert len(outputs) == 20


async def test_a_busy_neighbour_thread_hangs_nothing(core: aioinfer.Core) -> None:
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1000))

    neighbour = threading.Thread(target=compute)
    neighbour.start()
    try:
        network = core.load_network(tiny_model(), "REFERENCE")
        outputs = await asyncio.gather(*(network.infer(X + number) for number in range(50)))
    finally:
        is_over.set()
        neighbour.join()
    for number, output in enumerate(outputs):
        np.testing.assert_array_equal(output["y"], expected(X + number))


def test_callbacks_drive_an_application_without_any_loop(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    left = iter(range(100))
    answers: dict[int, np.ndarray] = {}
    loops_seen: list[object] = []
    idle = threading.Semaphore(0)

    def feed(request: aioinfer.InferRequest) -> None:
        number = next(left, None)
        if number is None:
            idle.release()
        else:
            request.start_async(X + number, userdata=number)

    def callback(request: aioinfer.InferRequest, error: BaseException | None) -> None:
        loops_seen.append(asyncio._get_running_loop())
        assert error is None
        assert request.latency_s > 0
        answers[request.userdata] = request.results["y"]
        feed(request)

    requests = [network.create_infer_request() for _ in range(4)]
    for request in requests:
        request.set_callback(callback)
        feed(request)
    for _ in requests:
        assert idle.acquire(timeout=WAIT_S)
    for request in requests:
        assert request.wait()
    assert sorted(answers) == list(range(100))
    for number, output in answers.items():
        np.testing.assert_array_equal(output, expected(X + number))
    assert set(loops_seen) == {None}


def test_a_callback_runs_in_the_context_of_who_started(core: aioinfer.Core) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    seen: list[str] = []
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    request.set_callback(lambda _request, _error: seen.append(user.get()))
    for name in ("ada", "grace"):
        contextvars.copy_context().run(lambda name=name: (user.set(name), request.start_async(X)))
        request.wait()
    assert seen == ["ada", "grace"]


async def test_a_cancelled_run_without_a_request_has_its_slot_until_its_device_is_done(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    task = asyncio.create_task(network.infer(X))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(network.admission.runs), network.admission.run_count) == (1, 1)
    held[0].held.release()
    assert (len(network.admission.runs), network.admission.run_count) == (0, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop has no Windows")
def test_uvloop_answers_hundreds_of_tasks(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")

    async def main() -> None:
        outputs = await asyncio.gather(*(network.infer(X + number) for number in range(300)))
        for number, output in enumerate(outputs):
            np.testing.assert_array_equal(output["y"], expected(X + number))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
