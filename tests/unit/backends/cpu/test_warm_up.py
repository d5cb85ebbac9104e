"""On CPU every stream has its programs, and every weight its layout, before the first request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core, ExecutableNetwork
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.programs.program import Program
from aioinfer.errors import ClosedError
from aioinfer.executors import Lane
from aioinfer.runtime.runs.stage import Stop
from unit.backends.cpu.comparing import model_of

X = np.ones((4, 16), np.float32)
W = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)
NODES = [
    helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
    helper.make_node("Softmax", ["a"], ["y"], "prob"),
]


def model(*, dynamic: bool) -> Any:
    return model_of(NODES, {"x": X}, constants={"w": W}, dynamic=dynamic)


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each plan and program that is built, and each packing, from here on."""
    noted: list[str] = []

    def note(owner: type, name: str, word: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            noted.append(word)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, wrapped)

    note(Plan, "__init__", "plan")
    note(Plan, "pack", "pack")
    note(Program, "__init__", "program")
    return noted


def requests_of(network: ExecutableNetwork, rows: int) -> None:
    given = np.ones((rows, 16), np.float32)
    with ThreadPoolExecutor(8) as pool:
        requests = [network.create_infer_request() for _ in range(24)]
        for done in [pool.submit(request.infer_sync, given) for request in requests]:
            done.result(30)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("by", ["property", "method"])
def test_requests_find_every_program_built(
    core: Core, built: list[str], by: str, dynamic: bool, threads: int
) -> None:
    streams = 3
    config: dict[str, Any] = {
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": streams * threads,
        "CPU_ADAPTIVE_TEAMS": False,
    }
    shapes = {"x": (4, 16)}
    if by == "property":
        config["INPUT_SHAPES"] = shapes
    with core.load_network(model(dynamic=dynamic), "CPU", config) as network:
        if by == "method":
            assert network.warm_up(shapes) == []
        assert built.count("program") >= streams
        before = list(built)
        requests_of(network, 4)
        assert built == before
        if dynamic:
            requests_of(network, 5)
            assert built.count("program") > before.count("program")


def test_parts_of_a_network_over_devices_are_warm_on_every_stream(
    core: Core, built: list[str]
) -> None:
    config = {
        "DEVICE_PROPERTIES": {"CPU": {"NUM_STREAMS": 2, "CPU_ADAPTIVE_TEAMS": False}},
        "AFFINITY": {"product": "CPU", "prob": "REFERENCE"},
    }
    with core.load_network(model(dynamic=True), "HETERO:CPU,REFERENCE", config) as network:
        assert network.warm_up({"x": (4, 16)}) == []
        assert built.count("program") >= 2
        before = list(built)
        counts = [item.statistics().plans.build_count for item in network.networks]
        assert counts == [1, 1]
        requests_of(network, 4)
        assert built == before
        assert [item.statistics().plans.build_count for item in network.networks] == counts


def test_what_one_stream_cannot_compute_is_told(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Program.run

    def failing(program: Program, buffers: Any, *given: Any, **named: Any) -> Any:
        if program in first:
            return real(program, buffers, *given, **named)
        raise MemoryError("no more")

    first: list[Program] = []
    make = Program.__init__

    def noted(program: Program, *given: Any, **named: Any) -> None:
        make(program, *given, **named)
        if not first:
            first.append(program)

    monkeypatch.setattr(Program, "__init__", noted)
    monkeypatch.setattr(Program, "run", failing)
    config = {"NUM_STREAMS": 2, "INPUT_SHAPES": {"x": (4, 16)}}
    with core.load_network(model(dynamic=True), "CPU", config) as network:
        (told,) = network.warm_up()
        assert "out of memory" in told or "no more" in told


def test_lanes_are_given_back(core: Core) -> None:
    with core.load_network(model(dynamic=False), "CPU", {"NUM_STREAMS": 1}) as network:
        network.warm_up()
        lane = network._streams.borrow_lane()
        assert isinstance(lane, Lane)
        lane.give_back()


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
def test_a_close_stops_what_a_warm_up_runs_on_a_stream(
    core: Core, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    runs: list[Stop] = []
    were_stopped: list[bool] = []
    on_stream = threading.Event()
    real = Program.run

    def until_stopped(program: Program, buffers: Any, stop: Stop, *given: Any) -> Any:
        runs.append(stop)
        if len(runs) == 1:  # as a request; the next is the stream's own
            return real(program, buffers, stop, *given)
        stopped = threading.Event()
        stop.when_set(stopped.set)
        on_stream.set()
        were_stopped.append(stopped.wait(5) and stop.word == b"\1")
        raise stop.error or AssertionError

    monkeypatch.setattr(Program, "run", until_stopped)
    cpu = {"NUM_STREAMS": 1, "CPU_ADAPTIVE_TEAMS": False}
    config: dict[str, Any] = dict(cpu)
    if device != "CPU":
        affinity = {"product": "CPU", "prob": "REFERENCE"}
        config = {"DEVICE_PROPERTIES": {"CPU": cpu}, "AFFINITY": affinity}
    network = core.load_network(model(dynamic=True), device, config)
    with ThreadPoolExecutor(1) as pool:
        warming = pool.submit(network.warm_up, {"x": (4, 16)})
        assert on_stream.wait(20)
        assert network.close(drain=False, timeout_s=20)
        assert isinstance(warming.exception(20), ClosedError)
    assert were_stopped == [True]
