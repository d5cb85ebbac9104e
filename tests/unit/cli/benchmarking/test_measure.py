import asyncio
import signal
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from aioinfer.cli.benchmarking.measure import (
    Limits,
    Measurement,
    measure_async,
    measure_callback,
    measure_sync,
    run_on_event_loop,
    whole_rounds,
)
from aioinfer.cli.inputs import InputSets

NOTHING = InputSets({})


class Clock:
    """Moves on by a second with every look."""

    def __init__(self) -> None:
        self.now_s = 0

    def __call__(self) -> int:
        self.now_s += 1
        return self.now_s * 1_000_000_000


class Request:
    """Answers at once, keeps what it was given, and ends with an error after some runs."""

    def __init__(self, error: BaseException | None = None, after: int = 0) -> None:
        self.given: list[Any] = []
        self._error, self._after = error, after

    def infer_sync(self, inputs: Any) -> None:
        if self._error is not None and len(self.given) == self._after:
            raise self._error
        self.given.append(inputs)

    async def infer(self, inputs: Any) -> None:
        self.infer_sync(inputs)
        await asyncio.sleep(0)


def measure_on_loop(requests: list[Any], inputs: InputSets, measurement: Measurement) -> None:
    run_on_event_loop(lambda: measure_async(requests, inputs, measurement))


def test_sync_runs_as_often_as_wanted_and_rotates_inputs() -> None:
    request, measurement = Request(), Measurement(Limits(5, None), Clock())
    measure_sync(request, InputSets({"x": [10, 11]}), measurement)
    assert [inputs["x"] for inputs in request.given] == [10, 11, 10, 11, 10]
    assert measurement.latencies_ms == [1000.0] * 5
    assert measurement.duration_s == 10.0


def test_async_keeps_every_request_in_flight() -> None:
    requests, measurement = [Request() for _ in range(3)], Measurement(Limits(12, None))
    measure_on_loop(requests, InputSets({"x": list(range(12))}), measurement)
    assert measurement.count == 12
    assert sorted(inputs["x"] for request in requests for inputs in request.given) == list(
        range(12)
    )
    assert [len(request.given) for request in requests] == [4, 4, 4]


def test_more_requests_than_inferences_leave_some_idle() -> None:
    requests, measurement = [Request() for _ in range(5)], Measurement(Limits(2, None))
    measure_on_loop(requests, NOTHING, measurement)
    assert sum(len(request.given) for request in requests) == measurement.count == 2


def test_a_time_limit_stops_before_the_next_inference() -> None:
    request, measurement = Request(), Measurement(Limits(None, 5.0), Clock())
    measure_sync(request, NOTHING, measurement)
    # It starts at 1 s; a round looks three times at the clock: at 2, 5 and 8 s.
    assert measurement.count == 2


class CalledRequest(Request):
    """Calls back on a thread as soon as it is started, and so again and again."""

    def __init__(self, error: BaseException | None = None, after: int = 0) -> None:
        super().__init__(error, after)
        self.callback: Any = None
        self.userdata: Any = None
        self._started: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def set_callback(self, callback: Any) -> None:
        self.callback = callback
        if callback is None:
            self._started.put(None)
            self._thread.join()

    def start_async(self, inputs: Any, userdata: Any) -> None:
        self.userdata = userdata
        self._started.put((inputs,))

    def _answer(self) -> None:
        while (started := self._started.get()) is not None:
            error: BaseException | None = None
            try:
                self.infer_sync(*started)
            except ValueError as raised:
                error = raised
            self.callback(self, error)

    def cancel(self) -> None:
        """Nothing of it lasts."""

    def wait(self) -> bool:
        return True


def test_callbacks_keep_every_request_in_flight() -> None:
    requests, measurement = [CalledRequest() for _ in range(3)], Measurement(Limits(50, None))
    measure_callback(requests, InputSets({"x": [1]}), measurement)
    assert measurement.count >= 50
    assert sum(len(request.given) for request in requests) == measurement.count
    assert all(request.given for request in requests)
    assert all(latency_ns > 0 for latency_ns in measurement.latencies_ns)


def test_callbacks_of_fewer_inferences_than_requests_leave_some_idle() -> None:
    requests, measurement = [CalledRequest() for _ in range(5)], Measurement(Limits(2, None))
    measure_callback(requests, NOTHING, measurement)
    assert sum(len(request.given) for request in requests) == measurement.count == 2


def test_the_first_error_that_a_callback_is_told_is_raised_as_it_is() -> None:
    measurement = Measurement(Limits(None, None))
    requests = [CalledRequest(), CalledRequest(ValueError("broken"), after=3)]
    with pytest.raises(ValueError, match="broken"):
        measure_callback(requests, NOTHING, measurement)
    assert measurement.count >= 3


def test_ctrl_c_that_wakes_no_waiting_thread_ends_callbacks() -> None:
    class Interrupting(CalledRequest):
        def infer_sync(self, inputs: Any) -> None:
            super().infer_sync(inputs)
            if len(self.given) == 3:
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    measurement = Measurement(Limits(None, None))
    with pytest.raises(KeyboardInterrupt):
        measure_callback([Interrupting()], NOTHING, measurement)
    assert measurement.count >= 3


@pytest.mark.parametrize(("limits", "count"), [(Limits(1, 5.0), 1), (Limits(99, 5.0), 2)])
def test_the_nearer_limit_stops(limits: Limits, count: int) -> None:
    measurement = Measurement(limits, Clock())
    measure_sync(Request(), NOTHING, measurement)
    assert measurement.count == count


def test_progress_follows_the_nearer_limit() -> None:
    measurement = Measurement(Limits(10, 100.0), lambda: 50_000_000_000)
    assert measurement.progress == 0.0
    measurement.started_ns = 1
    assert measurement.progress == pytest.approx(0.5)
    measurement.latencies_ns = [1] * 8
    assert measurement.progress == 0.8
    measurement.latencies_ns = [1] * 11
    assert measurement.progress == 1.0


def test_sync_errors_leave_what_was_measured() -> None:
    measurement = Measurement(Limits(9, None))
    with pytest.raises(ValueError, match="broken"):
        measure_sync(Request(ValueError("broken"), after=3), NOTHING, measurement)
    assert measurement.count == 3


def test_the_first_error_of_async_requests_is_raised_as_it_is() -> None:
    measurement = Measurement(Limits(None, None))
    requests = [Request(), Request(ValueError("broken"), after=3)]
    with pytest.raises(ValueError, match="broken"):
        measure_on_loop(requests, NOTHING, measurement)
    assert measurement.count >= 3


class InterruptedRequest(Request):
    """Ctrl-C comes during its fourth run."""

    def infer_sync(self, inputs: Any) -> None:
        if len(self.given) == 3:
            signal.raise_signal(signal.SIGINT)
        super().infer_sync(inputs)


def test_an_interrupt_lets_the_sync_run_finish() -> None:
    measurement = Measurement(Limits(None, None))
    with pytest.raises(KeyboardInterrupt):
        measure_sync(InterruptedRequest(), NOTHING, measurement)
    assert measurement.count == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_ends_the_sync_run() -> None:
    class Impatient(InterruptedRequest):
        def infer_sync(self, inputs: Any) -> None:
            super().infer_sync(inputs)
            if len(self.given) == 4:
                signal.raise_signal(signal.SIGINT)

    measurement = Measurement(Limits(None, None))
    with pytest.raises(KeyboardInterrupt):
        measure_sync(Impatient(), NOTHING, measurement)
    assert measurement.count == 3


def test_a_foreign_handler_of_interrupts_is_left_alone() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        measurement = Measurement(Limits(5, None))
        measure_sync(InterruptedRequest(), NOTHING, measurement)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (measurement.count, caught) == (5, [signal.SIGINT])


def test_an_interrupt_on_the_event_loop_leaves_what_was_measured() -> None:
    measurement = Measurement(Limits(None, None))
    with pytest.raises(KeyboardInterrupt):
        measure_on_loop([InterruptedRequest()], NOTHING, measurement)
    assert measurement.count == 3


@pytest.mark.parametrize(
    ("count", "requests", "rounded"), [(1, 1, 1), (1, 4, 4), (8, 4, 8), (9, 4, 12)]
)
def test_counts_are_rounded_up_to_the_requests(count: int, requests: int, rounded: int) -> None:
    assert whole_rounds(count, requests) == rounded


def test_each_inference_is_looked_at_outside_of_its_latency() -> None:
    clock = Clock()
    seen: list[object] = []
    request, measurement = Request(), Measurement(Limits(3, None), clock)

    def look(given: object) -> None:
        seen.append(given)
        clock()

    before = Measurement(Limits(3, None), Clock())
    measure_sync(request, NOTHING, before)
    measurement.look = look
    measure_sync(request, NOTHING, measurement)
    assert seen == [request] * 3
    assert measurement.latencies_ns == before.latencies_ns
