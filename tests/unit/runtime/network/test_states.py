"""State: which pairs are refused, what a run hands on, and that only a success is kept."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    ModelError,
    PropertyError,
    RequestBusyError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.testing import MockDevices
from onnx_text import parse_proto
from unit.runtime.event_loops import settle
from unit.runtime.held_runs import finish

SUM = parse_proto("""
    g (float[n,3] x, float[n,3] past) => (float[n,3] y, float[n,3] present) {
        present = Add (past, x)
        y = Relu (present)
    }
""")
STATE = {"STATE": {"past": "present"}}
X = np.array([[-1, 2, 3]], np.float32)


@pytest.fixture
def network(core: aioinfer.Core, held: MockDevices) -> aioinfer.ExecutableNetwork:
    """Two slots; runs wait on the device until the test lets them end."""
    return core.load_network(SUM, "MOCK.0", STATE)


def state_of(request: aioinfer.InferRequest) -> np.ndarray:
    (state,) = request.query_state()
    return state.state


def run(request: aioinfer.InferRequest, held: MockDevices, x: np.ndarray = X) -> None:
    request.start_async({"x": x})
    finish(held)
    request.wait()


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"pst": "present"}, "there is no input 'pst'; did you mean .past."),
        ({"past": "presents"}, "there is no output 'presents'; did you mean .present."),
        ({"past": "present", "x": "present"}, "output 'present' is to feed both 'past' and 'x'"),
        ({"past": "counts"}, "the element types differ"),
        ({"past": "wide"}, "lengths may differ only where they are open"),
        ({"past": "flat"}, "lengths may differ only where they are open"),
        ({"words": "words_out"}, "text cannot be state"),
        ({"parts": "parts_out"}, "both are to be tensors"),
        ("past", "a mapping from inputs to outputs is wanted"),
        ({"past": 3}, "the entry 'past': 3 is none"),
    ],
)
def test_pairs_that_no_state_can_be_are_refused_when_the_model_is_loaded(
    core: aioinfer.Core, pairs: Any, text: str
) -> None:
    model = parse_proto("""
        g (float[n,3] x, float[n,3] past, string[n] words, seq(float[n]) parts)
        => (float[n,3] present, int64[n,3] counts, float[n,4] wide, float[m] flat,
            string[n] words_out, seq(float[n]) parts_out)
        <int64[2] four = {1, 4}, int64[1] all = {-1}, float[1] one = {1}, int64[1] last = {1}> {
            present = Add (past, x)
            counts = Cast <to = 7> (x)
            sums = ReduceSum <keepdims = 1> (x, last)
            wide = Expand (sums, four)
            flat = Reshape (x, all)
            words_out = Identity (words)
            parts_out = Identity (parts)
        }
    """)
    with pytest.raises(PropertyError, match=text) as caught:
        core.load_network(model, "REFERENCE", {"STATE": pairs})
    assert caught.value.key == "STATE"


@pytest.mark.parametrize("device", ["REFERENCE", "CPU", "HETERO:CPU,REFERENCE"])
def test_a_state_has_no_location_of_its_own(core: aioinfer.Core, device: str) -> None:
    config = {**STATE, "OUTPUT_LOCATION": {"present": "DEVICE"}}
    with pytest.raises(PropertyError, match=r"the state 'past' and no.*leave it out") as told:
        core.load_network(SUM, device, config)
    assert told.value.key == "OUTPUT_LOCATION"
    config = {**STATE, "OUTPUT_LOCATION": {"y": "DEVICE"}}
    with core.load_network(SUM, device, config) as network:
        request = network.create_infer_request()
        for count in (1, 2):
            y = request.infer_sync({"x": X})["y"]
            assert isinstance(y, aioinfer.Tensor)
            np.testing.assert_array_equal(y.numpy(), np.maximum(count * X, 0))


@pytest.mark.parametrize("text", ["{", "[]", '{"past": 1}', '{"past": "x"}', "[" * 5000])
def test_metadata_that_names_no_pairs_is_a_mistake_of_the_model(
    core: aioinfer.Core, text: str
) -> None:
    model = core.read_model(SUM.SerializeToString())
    model.metadata["aioinfer.state"] = text
    with pytest.raises(ModelError, match="STATE"):
        core.load_network(model, "REFERENCE")


def test_what_is_open_starts_with_the_length_that_its_name_has_in_the_inputs(
    core: aioinfer.Core, held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    x = np.repeat(X, 4, axis=0)
    run(request, held, x)
    np.testing.assert_array_equal(state_of(request), x)
    with pytest.raises(TensorError, match=r"'n' is 4 in the state 'past'.*reset_state"):
        request.start_async({"x": X})
    request.reset_state()
    run(request, held)
    np.testing.assert_array_equal(state_of(request), X)


def test_a_run_of_no_request_starts_anew(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    async def infer() -> Any:
        first = asyncio.create_task(network.infer({"x": X}))
        await settle()
        finish(held)
        return await first

    for _ in range(2):
        np.testing.assert_array_equal(asyncio.run(infer())["y"], np.maximum(X, 0))


def test_a_cancelled_run_leaves_nothing_wherever_it_was(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request, *others = [network.create_infer_request() for _ in range(3)]
    run(request, held)
    before = state_of(request)
    for other in others:
        other.start_async({"x": X})
    request.start_async({"x": X})  # waits for a slot
    request.cancel()
    finish(held)
    with pytest.raises(RequestCancelledError):
        request.wait()
    np.testing.assert_array_equal(state_of(request), before)
    request.start_async({"x": X})  # is on the device
    request.cancel()
    with pytest.raises(RequestBusyError):
        request.reset_state()
    finish(held)
    with pytest.raises(RequestCancelledError):
        request.wait()
    np.testing.assert_array_equal(state_of(request), before)
    run(request, held)
    np.testing.assert_array_equal(state_of(request), 2 * X)


def test_a_run_that_is_cancelled_while_its_device_works_on_keeps_nothing_of_it(
    core: aioinfer.Core,
) -> None:
    devices = MockDevices(1, is_streamed=True)
    core.register_plugin("STREAMED", devices.make_plugin)
    with core.load_network(SUM, "STREAMED.0", STATE) as network:
        request = network.create_infer_request()
        request.start_async({"x": X})
        request.cancel()
        streams = devices[0].streams
        assert streams is not None
        streams.fire_all()
        with pytest.raises(RequestCancelledError):
            request.wait()
        np.testing.assert_array_equal(state_of(request), np.zeros((0, 3), np.float32))


def test_a_run_that_fails_or_comes_late_leaves_nothing(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    run(request, held)
    held[0].stage_fault = lambda stage: DeviceError("planted")
    request.start_async({"x": X})
    finish(held)
    with pytest.raises(DeviceError, match="planted"):
        request.wait()
    held[0].stage_fault = None
    request.start_async({"x": X}, deadline_s=0)
    finish(held)
    with pytest.raises(DeadlineExceededError):
        request.wait()
    np.testing.assert_array_equal(state_of(request), X)


def test_what_cannot_be_the_next_state_fails_the_run_that_has_made_it(
    core: aioinfer.Core, held: MockDevices
) -> None:
    model = parse_proto("""
        g (float[n,3] x, float[2,3] past) => (float[n,3] y, float[m,3] present) {
            present = Concat <axis = 0> (x, past)
            y = Relu (x)
        }
    """)
    with core.load_network(model, "MOCK.0", STATE) as network:
        request = network.create_infer_request()
        request.start_async({"x": X})
        finish(held)
        with pytest.raises(TensorError, match=r"'present' is \[3,3\].*cannot be the state 'past'"):
            request.wait()
        run(request, held, X[:0])


def test_two_threads_that_run_one_request_do_not_lose_a_state(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    late = network.make_run({"x": X}, request=request)  # of a thread that then waits here
    run(request, held)
    with pytest.raises(RequestBusyError, match="another thread"):
        late.launch()
    np.testing.assert_array_equal(state_of(request), X)


def test_a_state_cannot_be_looked_at_or_set_while_a_run_may_change_it(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    (state,) = request.query_state()
    request.start_async({"x": X})
    with pytest.raises(RequestBusyError):
        _ = state.state
    with pytest.raises(RequestBusyError):
        state.state = X
    with pytest.raises(RequestBusyError):
        state.reset()
    with pytest.raises(RequestBusyError):
        request.reset_state()
    finish(held)
    request.wait()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_stream_is_one_request_whose_items_follow_each_other(
    core: aioinfer.Core, is_async: bool
) -> None:
    async def source() -> AsyncIterator[Any]:
        for _ in range(4):
            yield {"x": X}

    with core.load_network(SUM, "REFERENCE", STATE) as network:
        items: Any = source() if is_async else [{"x": X}] * 4
        results = [outputs["y"] async for outputs in network.stream(items)]
        np.testing.assert_array_equal(results, [np.maximum(n * X, 0) for n in range(1, 5)])
        request = network.create_infer_request()
        for start in (1, 3):
            answers = network.stream([{"x": X}] * 2, request=request)
            results = [outputs["y"] async for outputs in answers]
            expected = [np.maximum(n * X, 0) for n in (start, start + 1)]
            np.testing.assert_array_equal(results, expected)


def test_a_stream_of_one_request_says_that_it_is_ordered(core: aioinfer.Core) -> None:
    with (
        core.load_network(SUM, "REFERENCE", STATE) as network,
        core.load_network(SUM, "REFERENCE") as other,
    ):
        with pytest.raises(PropertyError, match="hands on its state, so results come in order"):
            network.stream([], ordered=False)
        with pytest.raises(PropertyError, match="leave out look_ahead"):
            network.stream([], look_ahead=4)
        with pytest.raises(PropertyError, match="give one of this network"):
            network.stream([], request=object())  # type: ignore[arg-type]
        with pytest.raises(PropertyError, match="give one of this network"):
            network.stream([], request=other.create_infer_request())


@pytest.mark.parametrize("streams", [0, 1])
def test_functions_around_a_network_see_no_state(core: aioinfer.Core, streams: int) -> None:
    seen: list[list[str]] = []

    def preprocess(given: Any) -> Any:
        seen.append(sorted(given))
        return {"x": given["x"] * X}

    def postprocess(outputs: dict[str, Any]) -> Any:
        seen.append(sorted(outputs))
        if outputs["y"][0, 1] == 6 and len(seen) < 6:
            raise ValueError("planted")
        return outputs["y"]

    config = {**STATE, "PREPROCESS_STREAMS": streams, "POSTPROCESS_STREAMS": 1}
    with core.load_network(
        SUM, "REFERENCE", config, preprocess=preprocess, postprocess=postprocess
    ) as network:
        request = network.create_infer_request()
        np.testing.assert_array_equal(request.infer_sync({"x": 2}), np.maximum(2 * X, 0))
        for _ in range(2):  # the first one fails behind the network, and leaves no state
            try:
                answer = request.infer_sync({"x": 1})
            except ValueError:
                continue
        np.testing.assert_array_equal(answer, np.maximum(3 * X, 0))
        np.testing.assert_array_equal(state_of(request), 3 * X)
        assert seen == [["x"], ["y"]] * 3


def test_requests_of_a_network_without_state_have_none(core: aioinfer.Core) -> None:
    with core.load_network(SUM, "REFERENCE") as network:
        request = network.create_infer_request()
        assert request.query_state() == []
        request.reset_state()
        assert sorted(request.infer_sync({"x": X, "past": X})) == ["present", "y"]


def test_a_warm_up_makes_the_plan_of_the_first_run(core: aioinfer.Core) -> None:
    shapes = {"x": [2, 3]}
    with core.load_network(SUM, "REFERENCE", {**STATE, "INPUT_SHAPES": shapes}) as network:
        assert network.warm_up(shapes) == []
        request = network.create_infer_request()
        build_count = network.statistics().plans.build_count
        request.infer_sync({"x": np.repeat(X, 2, axis=0)})
        assert network.statistics().plans.build_count == build_count


def test_a_closed_network_has_freed_the_states_of_requests_that_are_held(
    core: aioinfer.Core, no_collector: None
) -> None:
    network = core.load_network(SUM, "CPU", STATE)
    request, unused = network.create_infer_request(), network.create_infer_request()
    request.infer_sync({"x": X})
    kept = request.kept_states
    assert kept is not None
    array = weakref.ref(kept.values["past"])
    (state,) = request.query_state()
    network.close()
    assert array() is None
    for refused in (lambda: state.state, state.reset, request.reset_state, unused.reset_state):
        with pytest.raises(ClosedError, match="is closed; load it again"):
            refused()
    with pytest.raises(ClosedError, match="is closed; load it again"):
        state.state = X


def test_states_of_many_threads_are_freed_by_a_close_beside_them(core: aioinfer.Core) -> None:
    """Requests come and go while the network closes: none is missed, none raises."""
    network = core.load_network(SUM, "CPU", STATE)
    held: list[aioinfer.InferRequest] = []
    begun = threading.Barrier(5)

    def use() -> None:
        begun.wait()
        try:
            while True:
                request = network.create_infer_request()
                request.infer_sync({"x": X})
                held.append(request)
        except ClosedError:
            pass

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    while len(held) < 20:
        held and held[-1].infer_sync({"x": X})
    network.close()
    for thread in threads:
        thread.join()
    assert [request for request in held if request.kept_states and request.kept_states.values] == []


def test_a_callback_that_a_close_waits_for_reads_its_state(core: aioinfer.Core) -> None:
    network = core.load_network(SUM, "REFERENCE.0", STATE)
    request = network.create_infer_request()
    inside, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []

    def callback(done: aioinfer.InferRequest, error: BaseException | None) -> None:
        inside.set()
        go_on.wait(10)
        try:
            seen.append(state_of(done).tolist())
        except ClosedError as refusal:
            seen.append(refusal)

    request.set_callback(callback)
    request.start_async({"x": X})
    assert inside.wait(10)
    closing = threading.Thread(target=network.close)
    closing.start()
    while not network.is_closed:
        pass
    go_on.set()
    closing.join()
    assert seen == [X.tolist()]
    with pytest.raises(ClosedError):
        state_of(request)
