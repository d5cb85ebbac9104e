"""How a request behaves on every device: start, wait, callback, errors, cancel, deadline, close."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import (
    ClosedError,
    DeadlineExceededError,
    PropertyError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from .conformance_case import WAIT_S, behaviour, expect, expect_equal, expect_error, load
from .conformance_models import sample_named

if TYPE_CHECKING:
    from ..devices.core import Core
    from ..network.infer_request import InferRequest

DOUBLED = sample_named("doubled")
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
RUN_COUNT = 32  # more than any small device has slots, so that some runs wait for one


def doubled(x: np.ndarray) -> np.ndarray:
    """Return what the sample of that name computes."""
    return np.asarray(np.maximum(x, 0) + x)


def expect_answer(request: InferRequest, x: np.ndarray = X) -> None:
    """Have one inference computed, and rightly."""
    expect_equal(request.infer_sync({"x": x})["y"], doubled(x), "output 'y' of infer_sync")


@behaviour
def _wait_means_that_the_results_are_there(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.start_async({"x": X}, userdata="mine")
        expect(request.wait() is True, "wait() is True when the run has ended")
        expect(request.wait(0) is True, "wait(0) is True when the run has ended")
        expect_equal(request.results["y"], doubled(X), "output 'y'")
        expect(request.userdata == "mine", "userdata is kept")
        expect(request.latency_s > 0, "a finished run has a latency")


@behaviour
def _a_run_of_start_async_calls_back_once(core: Core, device: str) -> None:
    calls: list[tuple[InferRequest, BaseException | None]] = []
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.set_callback(lambda again, error: calls.append((again, error)))
        request.start_async({"x": X})
        request.wait()
        expect(calls == [(request, None)], f"the callback came once without error, not {calls}")
        expect_answer(request)
        expect(len(calls) == 1, "infer_sync never calls the callback")


@behaviour
def _a_callback_may_start_the_request_again(core: Core, device: str) -> None:
    errors: list[BaseException | None] = []
    is_over = threading.Event()

    def callback(again: InferRequest, error: BaseException | None) -> None:
        errors.append(error)
        if error is None and len(errors) < 10:
            again.start_async({"x": X})
        else:
            is_over.set()

    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.set_callback(callback)
        request.start_async({"x": X})
        expect(is_over.wait(WAIT_S), f"ten runs call back; {len(errors)} have")
        request.wait()
        expect(errors == [None] * 10, f"ten runs call back without error, not {errors}")


@behaviour
def _a_callback_that_has_started_another_run_sees_its_own(core: Core, device: str) -> None:
    seen: list[tuple[object, np.ndarray]] = []
    is_over = threading.Event()

    def callback(again: InferRequest, _error: BaseException | None) -> None:
        number = again.userdata
        if number < RUN_COUNT:
            again.start_async({"x": X + number + 1}, userdata=number + 1)
        seen.append((again.userdata, again.results["y"]))
        if number == RUN_COUNT:
            is_over.set()

    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.set_callback(callback)
        request.start_async({"x": X}, userdata=0)
        expect(is_over.wait(WAIT_S), f"all runs call back; {len(seen)} have")
        request.wait()
        numbers = [number for number, _ in seen]
        expect(numbers == list(range(RUN_COUNT + 1)), f"each call has its userdata, not {numbers}")
        for number, (_, answer) in enumerate(seen):
            expect_equal(answer, doubled(X + number), f"results in call {number}")


@behaviour
def _a_callback_that_raises_is_what_wait_raises(core: Core, device: str) -> None:
    def callback(_request: InferRequest, _error: BaseException | None) -> None:
        raise KeyError("planted in the callback")

    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.set_callback(callback)
        request.start_async({"x": X})
        for _ in range(2):
            error = expect_error(KeyError, request.wait, "wait() after a callback that raised")
            expect("planted" in str(error), "it is the callback's own error")
        request.set_callback(None)
        expect_answer(request)


@behaviour
def _blocking_calls_refuse_inside_a_callback(core: Core, device: str) -> None:
    refused: list[RequestStateError] = []
    with load(core, device, DOUBLED) as network:
        request, other = network.create_infer_request(), network.create_infer_request()

        def callback(_request: InferRequest, _error: BaseException | None) -> None:
            for call in (lambda: other.infer_sync({"x": X}), network.close):
                refused.append(expect_error(RequestStateError, call, "blocking in a callback"))

        request.set_callback(callback)
        request.start_async({"x": X})
        request.wait()
        expect(len(refused) == 2, "both calls were refused")


@behaviour
def _waiting_without_a_start_returns_at_once(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        expect(request.wait() is False, "wait() is False when nothing was started")
        expect(request.wait(0) is False, "wait(0) is False when nothing was started")
        expect_error(PropertyError, lambda: request.wait(-1), "wait(-1)")
        expect_error(RequestStateError, lambda: request.results, "results before any run")


@behaviour
def _a_running_request_refuses_to_be_touched(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        requests = [network.create_infer_request() for _ in range(RUN_COUNT)]
        for request in requests:
            request.start_async({"x": X})
        last = requests[-1]
        for call in (
            lambda: last.start_async({"x": X}),
            lambda: last.set_tensor("x", X),
            lambda: last.get_tensor("y"),
            lambda: last.set_callback(None),
        ):
            try:
                call()
            except RequestBusyError:
                continue
            expect(last.wait() is True, "only a run that has ended frees its request")
        for request in requests:
            expect(request.wait(), "every run ends")
            expect_equal(request.results["y"], doubled(X), "output 'y'")


@behaviour
def _inputs_that_do_not_fit_leave_the_request_usable(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        for bad in (
            {"X": X},
            {},
            {"x": X, "y": X},
            {"x": X.astype(np.float64)},
            {"x": X[0]},
            {"x": X[:, :2]},
            {"x": None},
            [X, X],
        ):
            expect_error(TensorError, partial(request.start_async, bad), f"{bad!r:.60}")
            expect(request.wait(0) is False, "nothing was started")
        expect_answer(request)


@behaviour
def _an_error_is_told_to_callback_and_wait_and_the_next_run_is_clean(
    core: Core, device: str
) -> None:
    told: list[BaseException | None] = []
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.set_callback(lambda _request, error: told.append(error))
        request.set_tensor("y", np.empty_like(X))
        request.start_async({"x": X[:1]})  # its output does not fit the memory bound for it
        first, again = (
            expect_error(TensorError, request.wait, "an output that does not fit") for _ in range(2)
        )
        expect(told == [first], f"the callback got the error that wait raises, not {told}")
        expect(str(again) == str(first), f"wait raises the same each time, not {again}")
        expect_error(TensorError, lambda: request.infer_sync({"x": X[:1]}), "infer_sync")
        request.set_tensor("y", None)
        expect_answer(request)
        expect(network.statistics().failed_request_count == 2, "both are counted as failed")


@behaviour
def _cancel_without_a_run_under_way_does_nothing(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        request.cancel()
        expect_answer(request)
        request.cancel()
        expect_equal(request.results["y"], doubled(X), "output 'y' after a late cancel")
        expect_answer(request)


@behaviour
def _cancelled_runs_settle_and_their_requests_live_on(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        requests = [network.create_infer_request() for _ in range(RUN_COUNT)]
        for request in requests:
            request.start_async({"x": X})
        for request in reversed(requests):
            request.cancel()
            request.cancel()
        cancelled_count = 0
        for request in requests:
            try:
                request.wait()
                expect_equal(request.results["y"], doubled(X), "output 'y'")
            except RequestCancelledError:
                cancelled_count += 1
                expect_error(RequestCancelledError, request.wait, "wait() once more")
        statistics = network.statistics()
        expect(
            (statistics.cancelled_request_count, statistics.finished_request_count)
            == (cancelled_count, RUN_COUNT - cancelled_count),
            f"{cancelled_count} of {RUN_COUNT} are counted as cancelled: {statistics}",
        )
        for request in requests:
            expect_answer(request)


@behaviour
def _a_run_whose_deadline_has_passed_never_finishes(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        for deadline_s in (0.0, -1.0):
            request.start_async({"x": X}, deadline_s=deadline_s)
            for _ in range(2):
                expect_error(DeadlineExceededError, request.wait, f"deadline_s={deadline_s}")
        request.start_async({"x": X}, deadline_s=WAIT_S)
        expect(request.wait(), "a run in time is none the worse for a deadline")
        expect(network.statistics().expired_request_count == 2, "two runs expired")


@behaviour
def _requests_of_three_threads_do_not_mix(core: Core, device: str) -> None:
    def use(number: int) -> None:
        x = X + number
        request = network.create_infer_request()
        for _ in range(10):
            expect_answer(request, x)
            request.start_async({"x": x})
            request.wait()
            expect_equal(request.results["y"], doubled(x), f"output 'y' of thread {number}")

    with load(core, device, DOUBLED) as network, ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(use, number) for number in range(3)]:
            done.result()


@behaviour
def _waiting_in_another_order_than_starting(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        requests = [network.create_infer_request() for _ in range(3)]
        for number, request in enumerate(requests):
            request.start_async({"x": X + number})
        for number in (2, 0, 1):
            expect(requests[number].wait(), "every run ends")
            expect_equal(requests[number].results["y"], doubled(X + number), f"'y' of {number}")


@behaviour
def _close_waits_for_runs_and_nothing_starts_after_it(core: Core, device: str) -> None:
    told: list[BaseException | None] = []
    network = load(core, device, DOUBLED)
    requests = [network.create_infer_request() for _ in range(RUN_COUNT)]
    for request in requests:
        request.set_callback(lambda _request, error: told.append(error))
        request.start_async({"x": X})
    network.close()
    network.close()
    expect(told == [None] * RUN_COUNT, f"all {RUN_COUNT} runs finished before close returned")
    for request in requests:
        expect_equal(request.results["y"], doubled(X), "output 'y' after close")
    expect_error(ClosedError, lambda: requests[0].start_async({"x": X}), "start_async after close")
    expect_error(ClosedError, lambda: requests[0].infer_sync({"x": X}), "infer_sync after close")
    expect_error(ClosedError, network.create_infer_request, "create_infer_request after close")


@behaviour
def _an_aborting_close_answers_every_run(core: Core, device: str) -> None:
    network = load(core, device, DOUBLED)
    requests = [network.create_infer_request() for _ in range(RUN_COUNT)]
    for request in requests:
        request.start_async({"x": X})
    network.close(drain=False)
    for request in requests:
        try:
            expect(request.wait(0) is True, "every run has ended when close returns")
        except ClosedError:
            continue
        expect_equal(request.results["y"], doubled(X), "output 'y'")
