"""Programs and arenas of streams: bound once, bounded, shared by networks, gone with them."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.programs.lane_programs import LanePrograms
from aioinfer.executors import Lane
from aioinfer.runtime.plans.plan_cache import PLAN_COUNT
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import compiler_of, plan_of

WIDTH = 80  # wide enough for oneDNN, which packs
WEIGHTS = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def compiler(core: Core) -> Compiler:
    """Make the compiler of a model whose arena and packed weights are not empty."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    x = np.zeros((1, WIDTH), np.float32)
    model = model_of(nodes, {"x": x}, constants={"w": WEIGHTS}, dynamic=True)
    return compiler_of(core, model)


def convolution(core: Core) -> Plan:
    """Make a plan whose weights every processor wants packed."""
    x, w = np.zeros((1, 16, 9, 9), np.float32), np.ones((16, 16, 3, 3), np.float32)
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, constants={"w": w})
    return plan_of(core, model, {"x": x})


def plan(of: Compiler, rows: int) -> Plan:
    return of.compile({"x": (rows, WIDTH)}, {})


def programs() -> LanePrograms:
    return LanePrograms(step_runner(open_engine()))


def test_a_plan_is_bound_once_to_each_stream(core: Core) -> None:
    made, known = programs(), plan(compiler(core), 2)
    lanes = [Lane("a"), Lane("b")]
    first = [made.program(known, lane) for lane in lanes]
    assert first[0] is not first[1]
    assert [made.program(known, lane) for lane in lanes] == first
    assert first[0].arena is not first[1].arena


def test_weights_are_packed_before_the_first_run_and_by_one_stream(core: Core) -> None:
    made, known = programs(), convolution(core)
    assert known.weights
    assert all(weight.buffer.array is None for weight in known.weights)
    made.program(known, Lane("a"))
    packed = [weight.buffer.array for weight in known.weights]
    assert all(array is not None for array in packed)
    made.program(known, Lane("b"))
    assert all(
        weight.buffer.array is array for weight, array in zip(known.weights, packed, strict=True)
    )


def test_plans_share_packed_weights(core: Core) -> None:
    of = compiler(core)
    one, other = plan(of, 2), plan(of, 3)
    assert set(one.weights) == set(other.weights)
    made, lane = programs(), Lane("a")
    made.program(one, lane)
    size = of.weights.packed_bytes
    made.program(other, lane)
    assert of.weights.packed_bytes == size


def test_a_larger_plan_moves_the_arena_and_older_programs_follow(core: Core) -> None:
    made, of, lane = programs(), compiler(core), Lane("a")
    small, large = plan(of, 2), plan(of, 200_000)
    old = made.program(small, lane)
    assert large.arena_bytes > old.arena.nbytes
    arena = weakref.ref(old.arena)
    made.program(large, lane)
    assert made.arena_bytes >= large.arena_bytes
    new = made.program(small, lane)
    assert new is not old
    assert new.arena is made.program(large, lane).arena
    del old
    gc.collect()
    assert arena() is None  # nothing keeps the smaller one


def test_a_plan_that_fits_into_what_is_mapped_leaves_everything_in_place(core: Core) -> None:
    made, of, lane = programs(), compiler(core), Lane("a")
    small, large = plan(of, 2), plan(of, 200)
    assert large.arena_bytes > small.arena_bytes
    first = made.program(small, lane)
    assert made.arena_bytes == small.arena_bytes
    assert made.program(large, lane).arena is first.arena
    assert made.arena_bytes == large.arena_bytes
    assert made.program(small, lane) is first


def test_a_smaller_plan_leaves_everything_in_place(core: Core) -> None:
    made, of, lane = programs(), compiler(core), Lane("a")
    large, small = plan(of, 200), plan(of, 2)
    first = made.program(large, lane)
    made.program(small, lane)
    assert made.program(large, lane) is first


def test_the_least_recently_used_program_goes_first(core: Core) -> None:
    made, of, lane = programs(), compiler(core), Lane("a")
    largest = plan(of, 500)
    kept = made.program(largest, lane)
    others = [plan(of, rows) for rows in range(1, PLAN_COUNT + 1)]
    first = made.program(others[0], lane)
    for other in others[1:]:
        made.program(other, lane)
        assert made.program(largest, lane) is kept
    assert made.program(others[-1], lane) is made.program(others[-1], lane)
    assert made.program(others[0], lane) is not first


def test_there_is_room_for_all_plans_that_were_asked_for_ahead(core: Core) -> None:
    of, lane = compiler(core), Lane("a")
    plans = [plan(of, rows) for rows in range(PLAN_COUNT + 3, 0, -1)]
    made = LanePrograms(step_runner(of.engine), kept_plans=lambda: plans)
    bound = [made.program(known, lane) for known in plans]
    assert [made.program(known, lane) for known in plans] == bound


def test_networks_on_one_stream_share_its_arena(core: Core) -> None:
    lane, one, other = Lane("a"), programs(), programs()
    small, large = plan(compiler(core), 2), plan(compiler(core), 200_000)
    first = one.program(small, lane)
    first.arena[:] = 7
    bound = other.program(large, lane)
    assert bound.arena is not first.arena
    assert (first.arena == 7).all()  # it is where it was for as long as somebody has it
    moved = one.program(small, lane)
    assert moved is not first
    assert moved.arena is bound.arena
    assert one.arena_bytes == other.arena_bytes == large.arena_bytes


def test_the_arena_goes_with_the_last_network(core: Core) -> None:
    lane, one, other = Lane("a"), programs(), programs()
    known = plan(compiler(core), 2)
    arena = weakref.ref(one.program(known, lane).arena)
    other.program(known, lane)
    one.clear()
    gc.collect()
    assert arena() is not None
    other.clear()
    gc.collect()
    assert arena() is None
    assert one.arena_bytes == 0
    assert one.program(known, lane).arena.nbytes >= known.arena_bytes  # and may come again


def test_streams_bind_and_pack_side_by_side(core: Core) -> None:
    made, known = programs(), plan(compiler(core), 4)
    barrier, results, errors = threading.Barrier(4), [], []
    x = np.ones((4, WIDTH), np.float32)

    def work(lane: Lane) -> None:
        try:
            barrier.wait(30)
            y = np.empty((4, WIDTH), np.float32)
            for _ in range(50):
                made.program(known, lane).run((x, y))
            results.append(y)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(Lane(f"s{i}"),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert len(results) == 4
    assert all((y.view(np.int32) == results[0].view(np.int32)).all() for y in results)
