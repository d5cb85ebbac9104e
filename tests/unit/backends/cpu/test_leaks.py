"""What is left behind: no memory and no thread after closing, nothing but results while running."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.plans.plan import Plan
from exhaustive import all_but
from resident_memory import resident_bytes
from unit.backends.cpu.comparing import model_of

node = helper.make_node
CHANCE = np.random.default_rng(5)
X = CHANCE.standard_normal((64, 256)).astype(np.float32)
NODES = [
    node("MatMul", ["x", "v"], ["a"]),
    node("Relu", ["a"], ["b"]),
    node("MatMul", ["b", "w"], ["c"]),
    node("Softmax", ["c"], ["y"]),
]
WEIGHTS = {
    "v": CHANCE.standard_normal((256, 1024)).astype(np.float32),
    "w": CHANCE.standard_normal((1024, 256)).astype(np.float32),
}
WEIGHT_BYTES = sum(array.nbytes for array in WEIGHTS.values())  # 2 MiB


def model(dynamic: bool = False) -> Any:
    return model_of(NODES, {"x": X}, constants=WEIGHTS, dynamic=dynamic)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dynamic", all_but([True], [False, True]))
def test_loading_and_closing_leaves_no_memory_and_no_thread(core: Core, dynamic: bool) -> None:
    source = core.read_model(model(dynamic))

    def load_run_close() -> None:
        with core.load_network(source, "CPU", {"NUM_STREAMS": 2}) as network:
            network.create_infer_request().infer_sync({"x": X})

    for _ in range(10):
        load_run_close()
    gc.collect()
    threads, grown = threading.active_count(), list[int]()
    for _ in range(3):  # allocators take some more at times, and a leak takes some each time
        before = resident_bytes()
        for _ in range(50):
            load_run_close()
        gc.collect()
        grown.append(resident_bytes() - before)
    assert threading.active_count() == threads
    assert min(grown) < 2 * 2**20, f"{min(grown) / 2**20:.1f} MiB more; 50 leaks of weights are 100"


def test_many_shapes_leave_no_more_than_their_plans(core: Core) -> None:
    config = {
        "CPU_ADAPTIVE_TEAMS": False
    }  # or plans for smaller teams come late, on a busy machine
    with core.load_network(model(dynamic=True), "CPU", config) as network:
        request = network.create_infer_request()
        for count in range(1, 80):
            request.infer_sync({"x": X[:1].repeat(count, 0)})
        gc.collect()
        before = resident_bytes()
        for count in range(1, 80):
            request.infer_sync({"x": X[:1].repeat(count, 0)})
        gc.collect()
        assert resident_bytes() - before < 8 * 2**20


def test_weights_are_not_held_twice(core: Core) -> None:
    """A network of one shape holds what it packed, and not the file's weights as well."""
    source = core.read_model(model())
    originals = [
        weakref.ref(value.constant)
        for value in source.graph.initializers.values()
        if value.constant is not None
    ]
    assert len(originals) == len(WEIGHTS)
    with core.load_network(source, "CPU") as network:
        del source
        gc.collect()
        held_bytes = sum(item.nbytes for original in originals if (item := original()) is not None)
        held_bytes += network.get_metric("PACKED_WEIGHTS_BYTES")
        assert WEIGHT_BYTES <= held_bytes < 1.5 * WEIGHT_BYTES
        network.create_infer_request().infer_sync({"x": X})


def test_a_closed_network_that_is_held_keeps_no_constant_that_is_read_as_it_is(core: Core) -> None:
    """No primitive wants it packed; the template of plans for new lengths has it as well."""
    table = np.ones((4096, 256), np.float32)
    nodes = [node("Gather", ["table", "x"], ["y"])]
    given = {"x": np.zeros(1, np.int64)}
    source = model_of(nodes, given, constants={"table": table}, dynamic=True)
    gc.collect()
    gc.disable()
    try:
        before, held = resident_bytes(), []
        for _ in range(6):
            held.append(core.load_network(source, "CPU"))
            request = held[-1].create_infer_request()
            for count in (1, 20, 30):
                request.infer_sync({"x": np.zeros(count, np.int64)})
            held[-1].close()
        assert resident_bytes() - before < 3 * table.nbytes
    finally:
        gc.enable()


def test_a_closed_network_keeps_one_plan_for_its_graph_even_if_it_and_its_request_are_kept(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[weakref.ref[Plan]] = []
    compile_plan = Compiler.compile

    def noted(compiler: Compiler, *arguments: Any) -> Plan:
        plan = compile_plan(compiler, *arguments)
        plans.append(weakref.ref(plan))
        return plan

    monkeypatch.setattr(Compiler, "compile", noted)
    network = core.load_network(model(dynamic=True), "CPU")
    requests = [network.create_infer_request() for _ in range(3)]
    for count, request in enumerate(requests, start=1):
        request.infer_sync({"x": X[:count]})
    network.close()
    gc.collect()
    *earlier, latest = (plan() for plan in plans)
    assert earlier == [None, None]
    assert latest is not None
    assert len(network.runtime_graph()) > 0


@pytest.mark.parametrize("streams", [1, 2])
def test_a_warm_run_allocates_its_results_and_nothing_else(core: Core, streams: int) -> None:
    with core.load_network(model(), "CPU", {"NUM_STREAMS": streams}) as network:
        request = network.create_infer_request()
        for _ in range(10):
            request.infer_sync({"x": X})
        gc.collect()
        tracemalloc.start()
        try:
            peaks = []
            for _ in range(5):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                results = request.infer_sync({"x": X})
                peaks.append(tracemalloc.get_traced_memory()[1] - before)
                size = results["y"].nbytes
        finally:
            tracemalloc.stop()
        assert size == X.nbytes
        assert min(peaks) < size + 16 * 1024  # a few objects of the run


def test_a_warm_run_into_bound_memory_allocates_next_to_nothing(core: Core) -> None:
    with core.load_network(model(), "CPU") as network:
        request = network.create_infer_request()
        request.set_tensor("y", np.empty_like(X))
        for _ in range(10):
            request.infer_sync({"x": X})
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(5):
                tracemalloc.reset_peak()
                request.infer_sync({"x": X})
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert peak < 32 * 1024


EXIT = """
import sys, threading
import numpy as np, aioinfer
from unit.backends.cpu import test_leaks
from aioinfer.backends.cpu.programs.program import Program

entered = threading.Event()
real = Program.run

def run(self, *arguments):
    entered.set()
    for _ in range(200):
        real(self, *arguments)

Program.run = run
core = aioinfer.Core()
network = core.load_network(test_leaks.model(), "CPU", {"INFERENCE_NUM_THREADS": 2})
requests = [network.create_infer_request() for _ in range(3)]
for request in requests:
    request.start_async({"x": test_leaks.X})
assert entered.wait(30)
print("leaving")
"""


def test_a_process_may_end_while_runs_are_under_way() -> None:
    tests = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", EXIT],
        env={"PYTHONPATH": str(tests)},
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "leaving\n"), done.stderr
    assert "Traceback" not in done.stderr
