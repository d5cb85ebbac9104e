"""States that one part of HETERO makes and reads: CPU's part grows and writes them in place."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer import Core
from aioinfer.backends.hetero.subgraphs.cutting import CutModel, cut_model, node_edges
from aioinfer.backends.hetero.subgraphs.locations import states_inside
from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import select_subgraphs
from aioinfer.errors import BlobError, RequestCancelledError, TensorError
from aioinfer.runtime.tensors.turning_memory import TurnedArray
from onnx_text import parse_proto
from unit.backends.hetero.small_graphs import affinity, model

DEVICE = "HETERO:CPU,REFERENCE"
DECODER = parse_proto("""
    g (float[batch,new,8] x, float[batch,2,past,4] keys, float[batch,2,past,4] values)
    => (float[batch,new,8] y, float[batch,2,total,4] all_keys, float[batch,2,total,4] all_values)
    <int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}> {
        [before] shaped = Sin (x)
        rows = Reshape (shaped, heads)
        turned = Transpose <perm = [0, 2, 1, 3]> (rows)
        halves = Tanh (turned)
        [keys] all_keys = Concat <axis = 2> (keys, turned)
        [values] all_values = Concat <axis = 2> (values, halves)
        across = Transpose <perm = [0, 1, 3, 2]> (all_keys)
        scores = MatMul (turned, across)
        weights = Softmax <axis = -1> (scores)
        mixed = MatMul (weights, all_values)
        back = Transpose <perm = [0, 2, 1, 3]> (mixed)
        joined = Reshape (back, flat)
        [behind] y = Cos (joined)
    }
""")
PAIRS = {"keys": "all_keys", "values": "all_values"}
CACHE = parse_proto("""
    g (float[n,4] x, int64[n,1] at, float[64,4] past) => (float[64,4] y, float[64,4] present) {
        [write] present = ScatterND (past, at, x)
        [behind] y = Relu (present)
    }
""")

ACROSS = parse_proto("""
    g (float[2,4] x, float[2,4] past) => (float[2,4] y, float[2,4] present) {
        [read] sum = Add (x, past)
        [between] half = Tanh (sum)
        [make] present = Neg (half)
        [last] y = Cos (present)
    }
""")


def in_parts(core: Core, proto: Any, **devices: str) -> aioinfer.Model:
    """Read a model, with these nodes on these devices."""
    read = core.read_model(proto)
    for name, device in devices.items():
        read.node(name).affinity = device
    return read


def memory_of(request: aioinfer.InferRequest, name: str) -> Any:
    """The array that the next run reads, and not a copy of it."""
    kept = request.kept_states
    assert kept is not None
    return kept.values[name]


def place_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def inputs(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    shapes = [(2, 1 + step % 3, 8) for step in range(count)]
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def test_a_part_writes_behind_what_is_there(core: Core) -> None:
    whole = in_parts(core, DECODER, before="REFERENCE", behind="REFERENCE")
    with (
        core.load_network(DECODER, "REFERENCE", {"STATE": PAIRS}) as plain,
        core.load_network(whole, DEVICE, {"STATE": PAIRS}) as network,
    ):
        assert network.get_metric("NUMBER_OF_SUBGRAPHS") == 3
        request, other = network.create_infer_request(), plain.create_infer_request()
        places: list[int] = []
        for x in inputs(120):
            expected = other.infer_sync({"x": x})["y"]
            y = request.infer_sync({"x": x})["y"]
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
            places.append(place_of(memory_of(request, "keys")))
        moves = sum(old != new for old, new in pairwise(places))
        assert moves < 10, "memory moves with each half that a state has grown, and not more often"
        for state, kept in zip(request.query_state(), other.query_state(), strict=True):
            np.testing.assert_allclose(state.state, kept.state, rtol=1e-5, atol=1e-6)


def test_runs_of_two_requests_never_share(core: Core) -> None:
    whole = in_parts(core, DECODER, before="REFERENCE", behind="REFERENCE")
    with core.load_network(whole, DEVICE, {"STATE": PAIRS}) as network:
        requests = [network.create_infer_request() for _ in range(3)]
        alone = network.create_infer_request()
        expected = [alone.infer_sync({"x": x})["y"] for x in inputs(12)]
        for x, y in zip(inputs(12), expected, strict=True):
            for request in requests:
                request.start_async({"x": x})
            for request in requests:
                request.wait()
                np.testing.assert_array_equal(request.results["y"], y)
        for x, y in zip(inputs(12)[:1], expected, strict=False):
            np.testing.assert_array_equal(network.create_infer_request().infer_sync(x)["y"], y)


def test_a_part_behind_the_join_that_fails_leaves_what_was_there(core: Core) -> None:
    """The rows of the failed run are behind the state's end, where the next run writes its own."""
    fails = [False]

    def cosine(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise ValueError("not now")
        return np.cos(x)

    core.add_extension(aioinfer.Extension("Cos", cosine), "REFERENCE")
    whole = in_parts(core, DECODER, before="REFERENCE", behind="REFERENCE")
    with core.load_network(whole, DEVICE, {"STATE": PAIRS}) as network:
        request, other = network.create_infer_request(), network.create_infer_request()
        for step, x in enumerate(inputs(40)):
            expected = other.infer_sync({"x": x})["y"]
            if step % 3 == 1:
                before = [state.state for state in request.query_state()]
                fails[0] = True
                with pytest.raises(TensorError, match="not now"):
                    request.infer_sync({"x": x + 7})
                fails[0] = False
                for state, was in zip(request.query_state(), before, strict=True):
                    np.testing.assert_array_equal(state.state, was)
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], expected)


@pytest.mark.parametrize(
    ("reader", "maker"), [("CPU", "REFERENCE"), ("REFERENCE", "CPU"), ("CPU", "CPU")]
)
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["failed", "cancelled"])
def test_a_state_that_one_part_reads_and_another_makes_is_kept_at_success_alone(
    core: Core, reader: str, maker: str, is_cancelled: bool
) -> None:
    """The last part is under way when the new state has been made, and ends badly."""
    begun, may_end, fails = threading.Event(), threading.Event(), [False]

    def cosine(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            begun.set()
            assert may_end.wait(60)
            if not is_cancelled:
                raise ValueError("not now")
        return np.cos(x)

    core.add_extension(aioinfer.Extension("Cos", cosine), "REFERENCE")
    between = "REFERENCE" if reader == "CPU" else "CPU"
    whole = in_parts(core, ACROSS, read=reader, between=between, make=maker, last="REFERENCE")
    with core.load_network(whole, DEVICE, {"STATE": {"past": "present"}}) as network:
        assert network.get_metric("NUMBER_OF_SUBGRAPHS") >= 2
        request, past = network.create_infer_request(), np.zeros((2, 4), np.float32)
        for step in range(12):
            x = np.full((2, 4), step - 5, np.float32)
            if step % 3 == 1:
                before = request.query_state()[0].state
                fails[0] = True
                begun.clear(), may_end.clear()
                request.start_async({"x": x + 7})
                assert begun.wait(60)
                if is_cancelled:
                    request.cancel()
                may_end.set()
                with pytest.raises(RequestCancelledError if is_cancelled else TensorError):
                    request.wait()
                fails[0] = False
                assert network.admission.wait_until_over(60)
                np.testing.assert_array_equal(request.query_state()[0].state, before)
            y = request.infer_sync({"x": x})["y"]
            past = -np.tanh(x + past)
            np.testing.assert_allclose(y, np.cos(past), rtol=1e-5)
            np.testing.assert_allclose(request.query_state()[0].state, past, rtol=1e-5)


@pytest.mark.parametrize("reader", ["CPU", "REFERENCE"])
def test_memories_of_a_written_state_take_turns_in_a_part(core: Core, reader: str) -> None:
    """Where its rows are read on another device, too, each run makes the whole of it anew."""
    whole = in_parts(core, CACHE, write="CPU", behind=reader)
    with core.load_network(whole, DEVICE, {"STATE": {"past": "present"}}) as network:
        request, expected = network.create_infer_request(), np.zeros((64, 4), np.float32)
        places: set[int] = set()
        order = np.random.default_rng(2)
        for step in range(1, 30):
            at = order.integers(-64, 64, size=2)
            expected[at] = step
            given = {"x": np.full((2, 4), step, np.float32), "at": at.reshape(-1, 1)}
            np.testing.assert_array_equal(request.infer_sync(given)["y"], np.maximum(expected, 0))
            np.testing.assert_array_equal(request.query_state()[0].state, expected)
            kept = memory_of(request, "past")
            assert isinstance(kept, TurnedArray) == (reader == "CPU")
            if step > 2:
                places.add(place_of(kept))
        assert (len(places) == 2) or reader == "REFERENCE"


def test_parts_of_an_imported_network_keep_their_states(core: Core) -> None:
    whole = in_parts(core, DECODER, before="REFERENCE", behind="REFERENCE")
    config = {"STATE": PAIRS, "DEVICE_PROPERTIES": {"CPU": {"EXPORTABLE": True}}}
    with core.load_network(whole, DEVICE, config) as network:
        blob = network.export()
        request = network.create_infer_request()
        expected = [request.infer_sync({"x": x})["y"] for x in inputs(60)]
    with core.import_network(blob) as network:
        request, places = network.create_infer_request(), []
        for x, y in zip(inputs(60), expected, strict=True):
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], y)
            places.append(place_of(memory_of(request, "keys")))
        assert sum(old != new for old, new in pairwise(places)) < 10


def test_a_blob_whose_part_keeps_what_the_whole_does_not_is_refused(core: Core) -> None:
    whole = in_parts(core, DECODER, before="REFERENCE", behind="REFERENCE")
    config = {"STATE": PAIRS, "DEVICE_PROPERTIES": {"CPU": {"EXPORTABLE": True}}}
    with core.load_network(whole, DEVICE, config) as network:
        assert network.states is not None
        network.states.named = {"keys": "all_keys"}
        network.config = network.config.with_defaults({"STATE": {"keys": "all_keys"}})
        blob = network.export()
    with pytest.raises(BlobError, match="subgraph 1 keeps the states"):
        core.import_network(blob)


def cut(text: str, outputs: str) -> CutModel:
    whole, devices = model(text, outputs), affinity(text)
    names = [node.name for node in whole.graph.nodes]
    edges = node_edges(whole.graph)
    subgraphs = select_subgraphs(names, edges, devices, sorted(set(devices.values())))
    ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
    return cut_model(whole, ordered)


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("a@0 = Relu(p); b@0 = Neg(a)", 0),
        ("a@0 = Relu(p); b@0 = Neg(a); c@1 = Abs(b)", None),  # 1 takes it, too
        ("a@0 = Relu(p); b@1 = Neg(a)", None),
        ("a@0 = Relu(p); c@1 = Abs(a); b@0 = Neg(c)", None),  # one part reads, another makes
        ("a@0 = Relu(p); c@1 = Abs(p); b@0 = Add(a, c)", None),
        ("c@1 = Abs(p2); b@0 = Add(p, c)", 1),
    ],
)
def test_a_state_is_of_the_part_that_alone_reads_and_makes_it(text: str, owner: int | None) -> None:
    pieces = cut(text.replace("; ", "\n"), "b")
    devices = {piece.device for piece in pieces.subgraphs}
    names = _inputs_of(text)
    found = states_inside(pieces, names, {"p": "b"}, devices)
    assert found == [{"p": "b"} if index == owner else {} for index in range(len(found))]
    nowhere: list[Mapping[str, str]] = [{} for _ in found]
    assert states_inside(pieces, names, {"p": "b"}, ()) == nowhere
    assert states_inside(pieces, names, {}, devices) == nowhere


def _inputs_of(text: str) -> list[str]:
    return [value.name for value in model(text.replace("; ", "\n"), "b").inputs]
