"""States on OPENCL, alone and in parts of HETERO: what crosses between host and device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.opencl import pyopencl_driver
from aioinfer.errors import ClosedError
from aioinfer.runtime.tensors.kept_array import KeptArray
from onnx_text import parse_proto
from opencl_device import choose_device

DECODER = parse_proto("""
    g (float[1,new,8] x, float[1,2,past,4] keys, float[1,2,past,4] values)
    => (float[1,new,8] y, float[1,2,total,4] all_keys, float[1,2,total,4] all_values)
    <int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}> {
        rows = Reshape (x, heads)
        turned = Transpose <perm = [0, 2, 1, 3]> (rows)
        halves = Tanh (turned)
        all_keys = Concat <axis = 2> (keys, turned)
        all_values = Concat <axis = 2> (values, halves)
        across = Transpose <perm = [0, 1, 3, 2]> (all_keys)
        scores = MatMul (turned, across)
        weights = Softmax <axis = -1> (scores)
        mixed = MatMul (weights, all_values)
        back = Transpose <perm = [0, 2, 1, 3]> (mixed)
        y = Reshape (back, flat)
    }
""")
PAIRS = {"STATE": {"keys": "all_keys", "values": "all_values"}}
COUNTER = parse_proto("""
    g (float[1,8] x, int64[1] count) => (float[1,k] y, int64[1] counted)
    <int64[1] one = {1}, int64[1] begin = {0}, int64[1] last = {1}> {
        counted = Add (count, one)
        y = Slice (x, begin, counted, last)
    }
""")
CHAIN = parse_proto("""
    g (float[4,4] x, float[4,4] past) => (float[4,4] y, float[4,4] present) {
        [first] sum = Add (x, past)
        [second] half = Tanh (sum)
        [third] present = Neg (half)
        [fourth] y = Relu (present)
    }
""")


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that have crossed, up and down."""
    counts = {"up": 0, "down": 0}
    write, read = pyopencl_driver._Queue.write, pyopencl_driver._Queue.read

    def counting_write(queue: Any, target: Any, source: Any) -> Any:
        counts["up"] += source.nbytes
        return write(queue, target, source)

    def counting_read(queue: Any, target: Any, source: Any) -> Any:
        counts["down"] += target.nbytes
        return read(queue, target, source)

    monkeypatch.setattr(pyopencl_driver._Queue, "write", counting_write)
    monkeypatch.setattr(pyopencl_driver._Queue, "read", counting_read)
    return counts


def test_a_step_copies_what_is_new_and_nothing_of_the_past(
    core: Core, copied: dict[str, int]
) -> None:
    with (
        core.load_network(DECODER, "OPENCL", PAIRS) as network,
        core.load_network(DECODER, "REFERENCE", PAIRS) as oracle,
    ):
        request, other = network.create_infer_request(), oracle.create_infer_request()
        random = np.random.default_rng(1)
        for _ in range(6):
            copied.update(up=0, down=0)
            x = random.normal(size=(1, 1, 8)).astype(np.float32)
            y = request.infer_sync({"x": x})["y"]
            assert copied["up"] == x.nbytes
            assert copied["down"] == y.nbytes
            np.testing.assert_allclose(y, other.infer_sync({"x": x})["y"], rtol=1e-4, atol=1e-5)
        for state, expected in zip(request.query_state(), other.query_state(), strict=True):
            np.testing.assert_allclose(state.state, expected.state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["OPENCL", "HETERO:OPENCL,CPU"])
def test_a_state_that_plans_are_made_for_is_read_on_the_host(core: Core, device: str) -> None:
    with core.load_network(COUNTER, device, {"STATE": {"count": "counted"}}) as network:
        request = network.create_infer_request()
        for length in (1, 2, 3):
            x = np.ones((1, 8), np.float32)
            assert request.infer_sync({"x": x})["y"].shape == (1, length)


@pytest.mark.parametrize(
    ("devices", "crosses", "is_there"),
    [
        ("OPENCL OPENCL OPENCL OPENCL", {"up": 64, "down": 64}, True),
        ("OPENCL OPENCL OPENCL CPU", {"up": 128, "down": 64}, False),  # CPU reads it, too
        ("OPENCL CPU OPENCL OPENCL", {"up": 128, "down": 128}, True),
        ("CPU OPENCL CPU OPENCL", {"up": 128, "down": 128}, False),
    ],
)
def test_a_state_stays_with_its_reader(
    core: Core, copied: dict[str, int], devices: str, crosses: dict[str, int], is_there: bool
) -> None:
    """Each tensor has 64 bytes; x goes up, y comes down, and every cut is crossed once."""
    model = core.read_model(CHAIN)
    nodes = dict(zip(("first", "second", "third", "fourth"), devices.split(), strict=True))
    for name, device in nodes.items():
        model.node(name).affinity = device
    config = {"STATE": {"past": "present"}}
    with core.load_network(model, "HETERO:OPENCL,CPU", config) as network:
        request = network.create_infer_request()
        past = np.zeros((4, 4), np.float32)
        for step in range(4):
            copied.update(up=0, down=0)
            x = np.full((4, 4), step - 1.5, np.float32)
            y = request.infer_sync({"x": x})["y"]
            past = -np.tanh(x + past)
            np.testing.assert_allclose(y, np.maximum(past, 0), rtol=1e-5)
            if step:
                assert copied == crosses
        kept = request.kept_states
        assert kept is not None
        assert isinstance(kept.values["past"], KeptArray) == is_there
        np.testing.assert_allclose(request.query_state()[0].state, past, rtol=1e-5)


@pytest.mark.parametrize(
    ("device", "model", "pairs"),
    [
        ("OPENCL", DECODER, PAIRS),
        ("OPENCL", CHAIN, {"STATE": {"past": "present"}}),
        ("HETERO:OPENCL,CPU", CHAIN, {"STATE": {"past": "present"}}),
    ],
)
def test_memory_of_states_is_free_at_close_though_requests_are_held(
    no_collector: None, device: str, model: Any, pairs: dict[str, Any]
) -> None:
    with Core() as own:
        choose_device(own)
        own.load_network(model, device, pairs).close()
        (opened,) = own.plugin_of("OPENCL")._opened.values()
        before = opened.memory.taken_bytes
        network = own.load_network(model, device, pairs)
        requests = [network.create_infer_request() for _ in range(3)]
        shape = (1, 1, 8) if model is DECODER else (4, 4)
        for request in requests:
            for _ in range(3):
                request.infer_sync({"x": np.ones(shape, np.float32)})
        states = requests[0].query_state()
        assert opened.memory.taken_bytes > before
        network.close()
        assert opened.memory.taken_bytes == before
        with pytest.raises(ClosedError, match="is closed; load it again"):
            states[0].state  # noqa: B018
