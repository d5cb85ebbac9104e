"""What the first request of some shapes would pay for is done ahead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from aioinfer import Core, ExecutableNetwork, Extension
from aioinfer.errors import ClosedError, TensorError
from aioinfer.runtime.graph import DType, OptionalType, SequenceType, TensorType, ValueType
from aioinfer.runtime.network.warm_up import made_up_inputs, shapes_to_warm_up
from aioinfer.runtime.runs.slot import Slot
from aioinfer.runtime.runs.stage import Stop
from aioinfer.runtime.tensors.tensor import Port
from aioinfer.testing import MockDevices
from onnx_text import parse_proto
from unit.runtime.models import tiny_model

LOOKUP = """g (int64[n] ids) => (float[n,2] y) <float[3,2] table = {0, 1, 2, 3, 4, 5}> {
    y = Gather<axis=0>(table, ids)
}"""

UNSPLITTABLE = """g (float[4,4] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }"""
"""Fails for every s but [16] and [-1]."""

STEPS = """g (float[4] x, int64[1] steps) => (float[n] y) {
    begin = Constant<value_ints=[0]>()
    end = Constant<value_ints=[4]>()
    axes = Constant<value_ints=[0]>()
    y = Slice(x, begin, end, axes, steps)
}"""
"""Fails where steps are 0."""


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


def port(name: str, kind: ValueType | None) -> Port:
    return Port(name, kind)


def in_many_threads(network: ExecutableNetwork, inputs: dict[str, Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        requests = [network.create_infer_request() for _ in range(16)]
        for done in [pool.submit(request.infer_sync, inputs) for request in requests]:
            done.result(30)


def test_open_lengths_are_1_unless_they_are_given() -> None:
    ports = [
        port("a", TensorType(DType.FLOAT32, ("n", "m", 3))),
        port("b", TensorType(DType.FLOAT32, ("n", None))),
    ]
    assert shapes_to_warm_up(ports, [{}, {"a": (4, 5, 3)}]) == [
        {"a": (1, 1, 3), "b": (1, 1)},
        {"a": (4, 5, 3), "b": (4, 1)},
    ]
    with pytest.raises(TensorError, match="axis 2"):
        shapes_to_warm_up(ports, [{"a": (4, 5, 6)}])


def test_made_up_inputs_are_ones_and_what_may_be_an_index_is_zero() -> None:
    kinds: dict[str, ValueType | None] = {
        "real": TensorType(DType.FLOAT16, (2,)),
        "index": TensorType(DType.INT64, (2,)),
        "flag": TensorType(DType.BOOL, ()),
        "text": TensorType(DType.STRING, (1,)),
        "small": TensorType(DType.BFLOAT16, (1,)),
        "row": TensorType(DType.INT64, (1,)),
        "list": SequenceType(TensorType(DType.FLOAT32, ("n",))),
        "none": OptionalType(TensorType(DType.FLOAT32, ())),
    }
    ports = [port(name, kind) for name, kind in kinds.items()]
    shapes = shapes_to_warm_up(ports, [{}])[0]
    made = made_up_inputs(ports, shapes, {"row": np.array([7])})
    np.testing.assert_array_equal(made["real"], np.ones(2, np.float16), strict=True)
    np.testing.assert_array_equal(made["index"], np.zeros(2, np.int64), strict=True)
    assert made["flag"].shape == ()
    assert not made["flag"]
    assert made["text"].tolist() == [""]
    assert made["small"].astype(float).tolist() == [1]
    assert made["row"].tolist() == [7]
    np.testing.assert_array_equal(made["list"][0], np.ones(1, np.float32), strict=True)
    assert made["none"] is None
    assert made_up_inputs(ports, shapes, integer=1)["index"].tolist() == [1, 1]


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
def test_no_plan_is_built_by_the_first_request(core: Core, device: str) -> None:
    with core.load_network(tiny_model(), device) as network:
        inner = network.networks if device.startswith("HETERO") else [network]
        assert network.warm_up([{"x": (2, 3)}, {"x": (5, 3)}]) == []
        built = [item.statistics().plans.build_count for item in inner]
        assert built == [2 for _ in inner]
        in_many_threads(network, {"x": np.ones((5, 3), np.float32)})
        assert [item.statistics().plans.build_count for item in inner] == built


def test_shapes_that_are_given_while_loading_are_run(core: Core) -> None:
    ran: list[tuple[int, ...]] = []

    def twice(x: Any) -> Any:
        ran.append(x.shape)
        return x + x

    core.add_extension(Extension("Twice", twice, "com.acme"))
    model = parse_proto("g (float[n] x) => (float[n] y) { y = com.acme.Twice(x) }")
    with core.load_network(model, "REFERENCE", {"INPUT_SHAPES": {"x": (4,)}}):
        assert ran == [(4,)]


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
def test_a_warm_up_is_in_no_statistics_and_no_trace(core: Core, device: str) -> None:
    affinity = {"AFFINITY": {"add": "REFERENCE.1"}} if device.startswith("HETERO") else {}
    with core.load_network(tiny_model(), device, affinity) as network:
        network.warm_up([{"x": (2, 3)}, {"x": (5, 3)}])
        now = network.statistics()
        for part in (now, *now.parts):
            assert (part.stages, part.slot_wait.count, part.batch_sizes) == ((), 0, {})
            assert (part.latencies, part.busy_shares, part.elapsed_s) == ({}, {}, 0)
        assert list(network.trace()) == []
        network.create_infer_request().infer_sync(np.zeros((2, 3), np.float32))
        now = network.statistics()
        assert {stage.count for stage in now.stages} == {1}
        assert [part.slot_wait.count for part in (now, *now.parts)] == [1] * (1 + len(now.parts))


def test_a_warm_up_that_waits_beside_requests_is_left_out_of_their_waits(core: Core) -> None:
    devices = MockDevices(1)
    core.register_plugin("MOCK", devices.make_plugin)
    held = devices[0].held
    network = core.load_network(tiny_model(), "MOCK")
    requests = [network.create_infer_request() for _ in range(3)]
    with ThreadPoolExecutor(1) as pool:
        for request in requests:
            request.start_async(np.zeros((1, 3), np.float32))
        warmed = pool.submit(network.warm_up)
        while network.statistics().waiting_run_count < 2:
            assert not warmed.done()
        assert network.statistics().slot_wait.count == 2, "a request and the warm-up wait"
        while not warmed.done():
            held.release(held.waiting_count)
        assert warmed.result() == []
    for request in requests:
        assert request.wait(20)
    assert network.statistics().slot_wait.count == 3


def test_without_shapes_a_network_takes_those_it_was_loaded_with(core: Core) -> None:
    with core.load_network(tiny_model(), "REFERENCE", {"INPUT_SHAPES": {"x": (4, 3)}}) as network:
        network.warm_up()
        assert network.statistics().plans.build_count == 1
    with core.load_network(tiny_model(), "REFERENCE") as network:
        network.warm_up()
        assert network.statistics().plans.build_count == 1
        network.create_infer_request().infer_sync(np.ones((1, 3), np.float32))
        assert network.statistics().plans.build_count == 1


async def test_the_event_loop_goes_on_meanwhile(core: Core) -> None:
    async with core.load_network(tiny_model(), "REFERENCE") as network:
        assert await network.warm_up_async({"x": (2, 3)}) == []
        assert network.statistics().plans.build_count == 1


def test_tables_are_looked_up_where_they_have_rows(core: Core) -> None:
    with core.load_network(parse_proto(LOOKUP), "REFERENCE") as network:
        assert network.warm_up({"ids": (5,)}) == []


def test_integers_are_1_where_0_fails(core: Core) -> None:
    with core.load_network(parse_proto(STEPS), "REFERENCE") as network:
        assert network.warm_up() == []


def test_a_model_that_fails_on_made_up_inputs_is_loaded_and_the_reason_told(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"INPUT_SHAPES": {"x": (4, 4)}}
    with (
        caplog.at_level(logging.WARNING, "aioinfer"),
        core.load_network(parse_proto(UNSPLITTABLE), "REFERENCE", config) as network,
    ):
        (record,) = caplog.records
        assert "'x' [4,4], 's' [1]" in record.message
        assert "Reshape" in record.message
        (told,) = network.warm_up()
        assert told == record.message
        given = {"x": np.ones((4, 4), np.float32), "s": np.array([16])}
        assert network.create_infer_request().infer_sync(given)["y"].shape == (16,)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (2, 4)}, "axis 1"),
        ({"z": (2, 3)}, "no input 'z'"),
        ({"x": ("n", 3)}, "lengths are integers"),
        (7, "a mapping input name"),
    ],
)
def test_shapes_that_contradict_the_model_are_refused(
    core: Core, shapes: Any, message: str
) -> None:
    with (
        core.load_network(tiny_model(), "REFERENCE") as network,
        pytest.raises(TensorError, match=message),
    ):
        network.warm_up(shapes)


def test_a_closed_network_is_not_warmed_up(core: Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    network.close()
    with pytest.raises(ClosedError):
        network.warm_up()


def test_every_slot_is_taken_where_a_device_wants_it(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[Slot] = set()
    lock = threading.Lock()
    from aioinfer.backends.reference import executable_network as module

    real = module._ReferenceSlot._compute

    def noted(slot: Any, lane: Any) -> Any:
        with lock:
            used.add(slot)
        return real(slot, lane)

    monkeypatch.setattr(module._ReferenceSlot, "_compute", noted)
    from aioinfer.runtime.network.warm_up import run_in_slots

    with core.load_network(tiny_model(), "REFERENCE", {"NUM_STREAMS": 3}) as network:
        run_in_slots(
            network, {"x": np.ones((2, 3), np.float32)}, network.admission.slot_count, Stop()
        )
        assert len(used) == network.admission.slot_count == 6


def test_a_close_waits_for_a_warm_up_no_longer_than_it_may(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    begun, may_end = threading.Event(), threading.Event()
    stops: list[Stop] = []

    def run_everywhere(_inputs: Any, stop: Stop) -> None:
        stops.append(stop)
        begun.set()
        assert may_end.wait(20)
        stop.raise_if_set()

    monkeypatch.setattr(network, "run_everywhere", run_everywhere)
    with ThreadPoolExecutor(1) as pool:
        warming = pool.submit(network.warm_up)
        try:
            assert begun.wait(20)
            assert not network.close(timeout_s=0.01)
            assert isinstance(stops[0].error, ClosedError)
            assert not network.close(drain=False, timeout_s=0)
        finally:
            may_end.set()
        assert isinstance(warming.exception(20), ClosedError)
    assert network.close(timeout_s=20)


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
def test_all_shapes_of_a_warm_up_are_kept(core: Core, device: str) -> None:
    shapes = [{"x": (rows, 3)} for rows in range(1, 41)]
    with core.load_network(tiny_model(), device) as network:
        assert network.warm_up(shapes) == []
        for part in network.networks if device.startswith("HETERO") else [network]:
            plans = part.statistics().plans
            assert (plans.kept_count, plans.eviction_count) == (40, 0)


def test_shapes_beyond_a_bound_of_the_user_are_told(core: Core) -> None:
    shapes = [{"x": (rows, 3)} for rows in range(1, 6)]
    with core.load_network(tiny_model(), "REFERENCE", {"PLAN_CACHE_COUNT": 3}) as network:
        (told,) = network.warm_up(shapes)
        assert told.endswith("3 of 5 plans are kept; raise PLAN_CACHE_COUNT")
