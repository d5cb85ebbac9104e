import threading

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.ort.executable_network import OrtNetwork
from aioinfer.backends.ort.session import Session
from aioinfer.errors import RequestCancelledError, TensorError
from onnx_text import parse_proto

ENDLESS = """g (float[1] x) => (float[1] y) {
    count = Constant <value_int = 1000000000000> ()
    go_on = Constant <value = bool {1}> ()
    y = Loop (count, go_on, x) <body = b (int64 i, bool going, float[1] a) => (bool go, float[1] c)
        { go = Identity (going) c = Add (a, x) }>
}"""
"""A model that runs for weeks unless it is told to end."""
RELU = parse_proto("g (float[n, 3] x) => (float[n, 3] y) { [act] y = Relu (x) }")
RESHAPE = parse_proto("g (float[n] x, int64[2] s) => (float[a, b] y) { [turn] y = Reshape (x, s) }")


JOINED = """g (int64 count, float[3] x) => (float[m] y, float[n, 3] z) {{
    y, z = Loop (count, , x) <body = b (int64 i, bool going, float[3] a)
        => (bool go, float[3] c, float[{length}] d)
        {{ go = Identity (going) c = Identity (a) d = Identity (a) }}>
}}"""
"""What the iterations have is joined; ``length`` is what the file says of one of them."""


def announce(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set when a run is on its way into onnxruntime."""
    started, run = threading.Event(), Session.run

    def announced(self, inputs, terminator):
        started.set()
        return run(self, inputs, terminator)

    monkeypatch.setattr(Session, "run", announced)
    return started


def test_a_cancel_ends_the_run_on_the_device(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = announce(monkeypatch)
    network = core.load_network(parse_proto(ENDLESS), "ONNXRUNTIME")
    request = network.create_infer_request()
    request.start_async(np.ones(1, np.float32))
    assert started.wait(30)
    request.cancel()
    with pytest.raises(RequestCancelledError):
        request.wait()
    assert network.statistics().cancelled_request_count == 1
    network.close()


async def test_a_deadline_ends_the_run_on_the_device(core: aioinfer.Core) -> None:
    network = core.load_network(parse_proto(ENDLESS), "ONNXRUNTIME")
    with pytest.raises(aioinfer.errors.DeadlineExceededError):
        await network.infer(np.ones(1, np.float32), deadline_s=0.01)
    await network.aclose()


def test_a_slot_serves_the_next_run_after_a_cancelled_one(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = announce(monkeypatch)
    text = ENDLESS.replace("count = Constant <value_int = 1000000000000> ()", "")
    model = parse_proto(text.replace("(float[1] x)", "(int64 count, float[1] x)"))
    config = {"PERFORMANCE_HINT_NUM_REQUESTS": 1}
    x = np.ones(1, np.float32)
    with core.load_network(model, "ONNXRUNTIME", config) as network:
        request = network.create_infer_request()
        for _ in range(3):  # more often than there are slots
            started.clear()
            request.start_async([np.array(10**12), x])
            assert started.wait(30)
            request.cancel()
            with pytest.raises(RequestCancelledError):
                request.wait()
            (y,) = request.infer_sync([np.array(3), x]).values()
            assert y.tolist() == [4]


def test_an_error_has_onnxruntimes_text_and_our_name_of_the_node(core: aioinfer.Core) -> None:
    with core.load_network(RESHAPE, "ONNXRUNTIME") as network:
        request = network.create_infer_request()
        x = np.zeros(6, np.float32)
        with pytest.raises(TensorError) as info:
            request.infer_sync({"x": x, "s": np.array([4, 2])})
        assert request.infer_sync({"x": x, "s": np.array([3, 2])})["y"].shape == (3, 2)
    text = str(info.value)
    assert text.startswith("Reshape (node 'turn') of network 'g' on ONNXRUNTIME.CPU failed:")
    assert "cannot be reshaped to the requested shape" in text


def test_bound_memory_is_written(core: aioinfer.Core) -> None:
    with core.load_network(RELU, "ONNXRUNTIME") as network:
        request = network.create_infer_request()
        mine = np.zeros((2, 3), np.float32)
        request.set_tensor("y", mine)
        results = request.infer_sync(np.ones((2, 3), np.float32))
    assert results["y"] is mine
    assert mine.tolist() == [[1] * 3] * 2


def test_the_network_shows_what_onnxruntime_was_given(core: aioinfer.Core) -> None:
    with core.load_network(RELU, "ONNXRUNTIME") as network:
        assert [node.name for node in network.runtime_graph().nodes] == ["act"]
        assert network.execution_devices == ("ONNXRUNTIME.CPU",)
        assert isinstance(network, OrtNetwork)
        inputs = network.session.get_inputs()
        assert [port.name for port in inputs] == ["x"]


@pytest.mark.parametrize("count", [0, 2])
def test_what_no_iteration_makes_has_the_shape_that_the_body_says(
    core: aioinfer.Core, count: int
) -> None:
    inputs = {"count": np.array(count), "x": np.ones(3, np.float32)}
    with core.load_network(parse_proto(JOINED.format(length=3)), "ONNXRUNTIME") as network:
        results = network.create_infer_request().infer_sync(inputs)
    assert results["z"].shape == (count, 3)


def test_a_body_that_says_what_is_not_so_is_loaded_without_that(core: aioinfer.Core) -> None:
    inputs = {"count": np.array(2), "x": np.ones(3, np.float32)}
    with core.load_network(parse_proto(JOINED.format(length=7)), "ONNXRUNTIME") as network:
        results = network.create_infer_request().infer_sync(inputs)
    assert results["z"].shape == (2, 3)
