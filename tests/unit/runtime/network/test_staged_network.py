"""A user's functions before and behind a network: stages of their own, or on callers' threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    NotSupportedError,
    PropertyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.event_loops import EVERY_LOOP, Run, settle
from unit.runtime.models import expected, tiny_model, two_input_model

WAIT_S = 20.0
TEXT = "1 -2 3"
X = np.array([[1, -2, 3]], np.float32)
INLINE = {"PREPROCESS_STREAMS": 0, "POSTPROCESS_STREAMS": 0}
EVERY_WAY = pytest.mark.parametrize("config", [{}, INLINE], ids=["stages", "inline"])


class PlantedError(Exception):
    """What a function raises."""


def parse(text: str) -> np.ndarray:
    return np.array([[float(word) for word in text.split()]], np.float32)


def parse_all(given: dict[str, Any]) -> dict[str, Any]:
    return {"x": parse(given["text"])}


def total(outputs: dict[str, Any]) -> float:
    return float(outputs["y"].sum())


class Gate:
    """A function that waits until the test opens it, and says when it was entered."""

    def __init__(self, result: Any) -> None:
        self._result = result
        self.entered, self.opened = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, _given: Any) -> Any:
        self.calls += 1
        self.entered.set()
        assert self.opened.wait(WAIT_S)
        return self._result


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await settle(1)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate(X)
    yield made
    made.opened.set()


@EVERY_WAY
@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1", "CPU"])
async def test_callers_give_what_preprocess_takes_and_get_what_postprocess_returns(
    core: aioinfer.Core, device: str, config: dict[str, Any]
) -> None:
    if device not in (*core.available_devices, "HETERO:REFERENCE.0,REFERENCE.1", "REFERENCE"):
        pytest.skip(core.why_missing(device) or f"{device} is not there")
    network = core.load_network(
        tiny_model(), device, config, preprocess=parse_all, postprocess=total
    )
    wanted = float(expected(X).sum())
    given = {"text": TEXT}
    assert await network.infer(given) == wanted
    request = network.create_infer_request()
    output = request.get_tensor("y")
    assert await request.infer(given) == request.results == wanted
    request.start_async(given)
    assert request.wait(WAIT_S)
    assert request.results == wanted
    np.testing.assert_array_equal(output.data, expected(X))
    assert [result async for result in network.stream([given] * 3)] == [wanted] * 3
    assert network.statistics().finished_request_count == 6


@EVERY_WAY
async def test_one_input_has_a_function_and_the_other_is_checked_at_once(
    core: aioinfer.Core, config: dict[str, Any]
) -> None:
    functions = {"a": lambda text: parse(text)[0]}
    network = core.load_network(two_input_model(), "REFERENCE", config, preprocess=functions)
    b = np.ones(3, np.float32)
    outputs = await network.infer({"a": TEXT, "b": b})
    np.testing.assert_array_equal(outputs["sum"], X[0] + 1)
    outputs = await network.infer([TEXT, b])
    np.testing.assert_array_equal(outputs["sum"], X[0] + 1)
    with pytest.raises(TensorError, match="float64"):
        await network.infer({"a": TEXT, "b": b.astype(np.float64)})
    with pytest.raises(TensorError, match="'a' of network 'two' is missing; its preprocess"):
        await network.infer({"b": b})
    with pytest.raises(TensorError, match="no input 'c'"):
        await network.infer({"a": TEXT, "b": b, "c": b})
    with pytest.raises(TensorError, match="'n'"):
        await network.infer({"a": "1 2", "b": b})


async def test_the_only_input_takes_any_value_but_a_mapping(core: aioinfer.Core) -> None:
    functions = {"x": lambda rows: np.array(rows, np.float32)}
    network = core.load_network(tiny_model(), "REFERENCE", preprocess=functions)
    outputs = await network.infer([[1, -2, 3]])
    np.testing.assert_array_equal(outputs["y"], expected(X))


@EVERY_WAY
@pytest.mark.parametrize("stage", ["preprocess", "postprocess"])
async def test_an_error_of_a_function_is_the_callers_with_the_stage_in_a_note(
    core: aioinfer.Core, stage: str, config: dict[str, Any]
) -> None:
    def fail(_given: Any) -> Any:
        raise PlantedError

    functions: dict[str, Any] = {"preprocess": {"x": parse}, "postprocess": total, stage: fail}
    network = core.load_network(tiny_model(), "REFERENCE", config, **functions)
    with pytest.raises(PlantedError) as caught:
        await network.infer({"x": TEXT})
    assert caught.value.__notes__ == [f"in stage {stage!r} of network 'tiny'"]


@EVERY_WAY
async def test_what_preprocess_returns_is_checked_as_inputs_are(
    core: aioinfer.Core, config: dict[str, Any]
) -> None:
    network = core.load_network(
        tiny_model(), "REFERENCE", config, preprocess=lambda given: {"x": np.zeros((1, 7), "f4")}
    )
    with pytest.raises(TensorError, match="7") as caught:
        await network.infer({})
    assert caught.value.__notes__ == ["in stage 'preprocess' of network 'tiny'"]


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ({"preprocess": 3}, "preprocess of network 'tiny' is int; give a function, or a mapping"),
        ({"preprocess": {"z": parse}}, "a function for 'z', and network 'tiny' has no such input"),
        ({"preprocess": {"x": "f"}}, "preprocess['x'] of network 'tiny' is str; give a function"),
        ({"postprocess": {"y": parse}}, "postprocess of network 'tiny' is dict; give a function"),
        ({"postprocess": asyncio.sleep}, "postprocess of network 'tiny' is a coroutine function"),
    ],
)
def test_what_is_no_function_is_refused_before_anything_is_compiled(
    core: aioinfer.Core, held: MockDevices, functions: dict[str, Any], says: str
) -> None:
    with pytest.raises(PropertyError) as caught:
        core.load_network(tiny_model(), "MOCK.0", **functions)
    assert says in str(caught.value)
    assert core.statistics().networks == ()


def test_an_input_with_a_function_has_no_tensor(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", preprocess={"x": parse})
    request = network.create_infer_request()
    with pytest.raises(TensorError, match="'x' of network 'tiny' is made by its preprocess"):
        request.set_tensor("x", X)
    with pytest.raises(TensorError, match="'x' of network 'tiny' is made by its preprocess"):
        request.get_tensor("x")


async def test_functions_run_beside_event_loop_and_device(
    core: aioinfer.Core, held: MockDevices, gate: Gate
) -> None:
    """One run is on the device, while the next is prepared, and one has its outputs handled."""
    behind = Gate(None)
    config = {"PREPROCESS_STREAMS": 1, "POSTPROCESS_STREAMS": 1}
    network = core.load_network(
        tiny_model(), "MOCK.0", config, preprocess=lambda given: given["call"](), postprocess=behind
    )
    tasks = [asyncio.create_task(network.infer({"call": lambda: {"x": X}})) for _ in range(2)]
    await until(lambda: held[0].held.waiting_count == 2)
    held[0].held.release()
    await asyncio.to_thread(behind.entered.wait, WAIT_S)
    tasks.append(asyncio.create_task(network.infer({"call": lambda: {"x": gate(None)}})))
    await asyncio.to_thread(gate.entered.wait, WAIT_S)
    assert held[0].held.waiting_count == 1
    assert not any(task.done() for task in tasks)
    gate.opened.set()
    behind.opened.set()
    while not all(task.done() for task in tasks):
        held[0].held.release(held[0].held.waiting_count)
        await asyncio.sleep(0)
    stages = {stage.stage: stage.count for stage in network.statistics().stages}
    assert (stages["preprocess"], stages["postprocess"]) == (3, 3)
    spans = [span.stage for span in network.trace() if span.run_id == 2]
    assert (spans[0], spans[-1]) == ("preprocess", "postprocess")


async def test_a_run_takes_a_slot_of_the_device_only_when_it_is_prepared(
    core: aioinfer.Core, held: MockDevices, gate: Gate
) -> None:
    config = {"PREPROCESS_STREAMS": 1}
    network = core.load_network(tiny_model(), "MOCK.0", config, preprocess={"x": gate})
    task = asyncio.create_task(network.infer("first"))
    await asyncio.to_thread(gate.entered.wait, WAIT_S)
    (part,) = network.statistics().parts
    assert (part.running_run_count, part.waiting_run_count) == (0, 0)
    slot_count = network.admission.slot_count
    others = [asyncio.create_task(network.infer(name)) for name in range(slot_count)]
    await until(lambda: bool(network.statistics().waiting_run_count))
    assert network.statistics().running_run_count == slot_count, "what waits in between is bounded"
    gate.opened.set()
    while not all(one.done() for one in (task, *others)):
        held[0].held.release(held[0].held.waiting_count)
        await asyncio.sleep(0)
    assert gate.calls == slot_count + 1


@pytest.mark.parametrize("way", ["cancel", "deadline", "abort"])
@pytest.mark.parametrize("where", ["preprocess", "network", "postprocess"])
async def test_a_run_that_is_stopped_answers_at_once_and_goes_no_further(
    core: aioinfer.Core, held: MockDevices, gate: Gate, where: str, way: str
) -> None:
    behind = gate if where == "postprocess" else Gate(None)
    behind.opened.set() if behind is not gate else None
    before: Any = {"x": gate} if where == "preprocess" else {"x": parse}
    network = core.load_network(tiny_model(), "MOCK.0", preprocess=before, postprocess=behind)
    clock = network.clock = VirtualTimer()
    request = network.create_infer_request()
    request.start_async(TEXT, deadline_s=1.0)
    if where == "preprocess":
        await asyncio.to_thread(gate.entered.wait, WAIT_S)
    else:
        await until(lambda: bool(held[0].held.waiting_count))
    if where == "postprocess":
        held[0].held.release()
        await asyncio.to_thread(gate.entered.wait, WAIT_S)
    error: type[Exception]
    if way == "cancel":
        request.cancel()
        error = RequestCancelledError
    elif way == "deadline":
        clock.advance(1.0)
        error = DeadlineExceededError
    else:
        network.abort()
        error = ClosedError
    with pytest.raises(error):
        _ = request.results
    gate.opened.set()
    held[0].held.release(held[0].held.waiting_count)
    with pytest.raises(error):
        await request.wait_async()
    assert held[0].held.waiting_count == 0
    assert behind.calls == (where == "postprocess")
    assert network.admission.run_count == 0


async def test_a_closed_network_has_closed_the_one_inside_and_given_back_its_threads(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(
        tiny_model(), "MOCK.0", preprocess={"x": parse}, postprocess=total, name="around"
    )
    assert core.executors.waiting_counts().keys() >= {"preprocess", "postprocess"}
    assert [shown.network for shown in core.statistics().networks] == ["around"]
    await network.aclose()
    assert not core.executors.waiting_counts().keys() & {"preprocess", "postprocess"}
    with pytest.raises(ClosedError):
        await network.infer(TEXT)


def test_warming_up_runs_the_network_without_the_functions(core: aioinfer.Core, gate: Gate) -> None:
    network = core.load_network(
        tiny_model(), "REFERENCE", {"INPUT_SHAPES": {"x": (2, 3)}}, preprocess={"x": gate}
    )
    assert network.warm_up() == []
    assert gate.calls == 0


def test_such_a_network_says_why_it_cannot_be_exported(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", preprocess={"x": parse})
    with pytest.raises(NotSupportedError, match="functions of Python"):
        network.export()


@pytest.mark.parametrize("stream_count", [0, 1])
def test_functions_run_on_the_threads_that_were_asked_for(
    core: aioinfer.Core, stream_count: Literal[0, 1]
) -> None:
    names: list[str] = []

    def note(given: Any) -> Any:
        names.append(threading.current_thread().name)
        return given

    config = {"PREPROCESS_STREAMS": stream_count, "POSTPROCESS_STREAMS": stream_count}
    network = core.load_network(
        tiny_model(), "REFERENCE", config, preprocess={"x": note}, postprocess=note
    )
    network.create_infer_request().infer_sync(X)
    here = threading.current_thread().name
    wanted = [here] * 2 if stream_count == 0 else ["preprocess.0", "postprocess.0"]
    assert names == wanted


def test_an_inline_postprocess_is_called_once_for_each_run(core: aioinfer.Core) -> None:
    calls: list[str] = []
    error = PlantedError()

    def fail(_outputs: Any) -> Any:
        calls.append("called")
        raise error

    network = core.load_network(tiny_model(), "REFERENCE", INLINE, postprocess=fail)
    told: list[BaseException | None] = []
    request = network.create_infer_request()
    request.set_callback(lambda _request, error: told.append(error))
    for _ in range(2):
        request.start_async(X)
        for _ in range(2):
            with pytest.raises(PlantedError):
                request.wait(WAIT_S)
            with pytest.raises(PlantedError):
                _ = request.results
    assert told == [error, error]
    assert len(calls) == 2
    assert error.__notes__ == ["in stage 'postprocess' of network 'tiny'"]


@pytest.mark.parametrize("ask", [lambda request: request.results, lambda request: request.wait()])
def test_a_postprocess_that_asks_for_its_own_results_is_refused(
    core: aioinfer.Core, ask: Callable[[aioinfer.InferRequest], Any]
) -> None:
    def postprocess(_outputs: Any) -> Any:
        return ask(request)

    network = core.load_network(tiny_model(), "REFERENCE", INLINE, postprocess=postprocess)
    request = network.create_infer_request()
    request.start_async(X)
    with pytest.raises(RequestStateError, match="asks for the results that it is to make"):
        request.wait(WAIT_S)


@pytest.mark.parametrize("where", ["preprocess", "postprocess"])
@pytest.mark.parametrize(
    "call",
    [
        lambda network, _request: network.close(),
        lambda network, _request: asyncio.run(network.aclose()),
        lambda network, _request: network.create_infer_request().infer_sync(X),
        lambda _network, request: request.wait(),
    ],
    ids=["close", "aclose", "infer_sync", "wait"],
)
def test_a_function_that_would_wait_for_itself_is_refused(
    core: aioinfer.Core, where: str, call: Callable[[Any, aioinfer.InferRequest], object]
) -> None:
    refused: list[str] = []

    def function(given: Any) -> Any:
        with pytest.raises(RequestStateError, match="and could wait for itself"):
            call(network, request)
        refused.append(where)
        return given

    functions: dict[str, Any] = {where: {"x": function} if where == "preprocess" else function}
    network = core.load_network(tiny_model(), "REFERENCE", **functions)
    request = network.create_infer_request()
    request.start_async(X)
    assert request.wait(WAIT_S)
    assert refused == [where]
    assert not network.is_closed


@EVERY_WAY
@pytest.mark.parametrize("where", ["preprocess", "postprocess"])
@pytest.mark.parametrize("stop", ["cancel", "abort"])
def test_a_function_may_stop_its_own_run(
    core: aioinfer.Core, where: str, stop: str, config: dict[str, Any]
) -> None:
    def function(given: Any) -> Any:
        request.cancel() if stop == "cancel" else network.abort()
        return given

    functions: dict[str, Any] = {where: {"x": function} if where == "preprocess" else function}
    network = core.load_network(tiny_model(), "REFERENCE", config, **functions)
    request = network.create_infer_request()
    error: type[BaseException] | None = None
    try:
        request.start_async(X)
        request.wait(WAIT_S)
    except (RequestCancelledError, ClosedError) as raised:
        error = type(raised)
    wanted = RequestCancelledError if stop == "cancel" else ClosedError
    if not config:
        assert error is wanted
    else:  # its run has not begun, or has ended
        assert error is (ClosedError if (where, stop) == ("preprocess", "abort") else None)
    assert network.close(timeout_s=WAIT_S)
    assert network.admission.runs == set()


@EVERY_WAY
@pytest.mark.parametrize("where", ["preprocess", "postprocess"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_any_exception_of_a_function_is_the_callers_and_the_network_goes_on(
    core: aioinfer.Core, where: str, kind: type[BaseException], config: dict[str, Any]
) -> None:
    is_broken = True

    def function(given: Any) -> Any:
        if is_broken:
            raise kind
        return given

    functions: dict[str, Any] = {where: {"x": function} if where == "preprocess" else function}
    network = core.load_network(tiny_model(), "REFERENCE", config, **functions)
    request = network.create_infer_request()
    with pytest.raises(kind):
        request.infer_sync(X)
    with pytest.raises(kind):
        asyncio.run(network.infer(X))  # type: ignore[arg-type]
    is_broken = False
    np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))
    assert network.close(timeout_s=WAIT_S)


@EVERY_LOOP
@EVERY_WAY
def test_callers_of_every_loop_are_served_beside_those_of_another(
    run: Run, core: aioinfer.Core, config: dict[str, Any]
) -> None:
    network = core.load_network(
        tiny_model(), "REFERENCE", config, preprocess={"x": parse}, postprocess=total
    )
    sums: list[float] = []

    async def main() -> None:
        sums.extend([await network.infer(TEXT) for _ in range(10)])
        sums.extend([each async for each in network.stream([TEXT] * 10)])

    threads = [threading.Thread(target=run, args=(main,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sums == [float(expected(X).sum())] * 40


@EVERY_WAY
@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
def test_a_preprocess_may_return_arrays_of_others_and_of_any_order(
    core: aioinfer.Core, device: str, config: dict[str, Any]
) -> None:
    class Lent:
        """What a library with arrays of its own returns."""

        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._array.__dlpack_device__()

    for function in (Lent, lambda x: np.asfortranarray(x)[:, ::-1][:, ::-1]):
        network = core.load_network(tiny_model(), device, config, preprocess={"x": function})
        result = network.create_infer_request().infer_sync(X)
        np.testing.assert_array_equal(result["y"], expected(X))
