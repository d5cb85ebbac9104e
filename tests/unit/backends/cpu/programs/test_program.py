"""Programs: segments around numpy steps, errors with their nodes, many runs of one plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import aligned_bytes, open_engine
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.backends.cpu.plans.packed_weights import WeightStore
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.plans.steps import NumpyStep
from aioinfer.backends.cpu.programs.program import Program
from aioinfer.errors import DeviceError, GraphError, RequestCancelledError, TensorError
from aioinfer.runtime.graph import DType, Node
from aioinfer.runtime.runs.stage import Stop, new_stop_word
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import BoundPlan

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def numpy_plan(
    core: Core, functions: dict[str, Callable[..., None] | None], x: np.ndarray = X
) -> Plan:
    """Build a chain of nodes, each a numpy step, or a native copy where there is no function."""
    names = list(functions)
    sources = ["x", *names]
    nodes = [
        helper.make_node("Neg", [source], [name], name)
        for source, name in zip(sources, names, strict=False)
    ]

    def lower(node: Node, builder: PlanBuilder) -> None:
        (source,) = node.inputs
        assert source is not None
        operand = builder.operand(source)
        made = builder.result(node.outputs[0], Layout.plain(operand.shape, operand.dtype))
        function = functions[node.name]
        if function is None:
            builder.copy(operand, made)
        else:
            builder.numpy(function, (operand, made))

    model = core.read_model(model_of(nodes, {"x": x}, [names[-1]])).copy()
    return PlanBuilder(model, open_engine(), WeightStore()).build(lower)


def double(source: np.ndarray, target: np.ndarray) -> None:
    target[...] = source * 2


@pytest.mark.parametrize(
    "functions",
    [
        {"y": double},
        {"a": None, "y": double},
        {"a": double, "y": None},
        {"a": None, "b": double, "y": None},
        {"a": double, "b": double, "c": None, "d": double, "y": None},
    ],
)
def test_numpy_steps_split_the_table(core: Core, functions: Any) -> None:
    plan = numpy_plan(core, functions)
    times = np.zeros(len(plan.steps) + 1, np.int64)
    (y,) = BoundPlan(plan).run({"x": X}, times)
    doubled = sum(1 for function in functions.values() if function is not None)
    np.testing.assert_array_equal(y, X * 2**doubled)
    assert (times > 0).all()
    assert (np.diff(times) >= 0).all()
    assert sum(isinstance(step, NumpyStep) for step in plan.steps) == doubled


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_numpy_steps_see_scalars_and_empty_arrays(core: Core, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    (y,) = BoundPlan(numpy_plan(core, {"a": double, "y": double}, x)).run({"x": x})
    np.testing.assert_array_equal(y, x * 4)


def test_an_error_in_a_numpy_step_names_its_node(core: Core) -> None:
    def fail(source: np.ndarray, target: np.ndarray) -> None:
        raise ValueError("not like that")

    bound = BoundPlan(numpy_plan(core, {"a": None, "b": fail, "y": None}))
    with pytest.raises(DeviceError) as failed:
        bound.run({"x": X})
    assert str(failed.value) == "CPU failed in Neg (node 'b'): not like that"
    assert isinstance(failed.value.__cause__, ValueError)


def test_a_bad_index_in_a_numpy_step_is_an_error_of_the_input(core: Core) -> None:
    def fail(source: np.ndarray, target: np.ndarray) -> None:
        raise IndexError("index 9 is out of bounds")

    with pytest.raises(TensorError) as failed:
        BoundPlan(numpy_plan(core, {"a": None, "b": fail})).run({"x": X})
    assert str(failed.value) == (
        "CPU failed in Neg (node 'b'): index 9 is out of bounds; check its index inputs"
    )


def test_an_interrupt_in_a_numpy_step_stays_one(core: Core) -> None:
    def interrupt(source: np.ndarray, target: np.ndarray) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BoundPlan(numpy_plan(core, {"y": interrupt})).run({"x": X})


def test_numpy_steps_do_not_warn(core: Core) -> None:
    def divide(source: np.ndarray, target: np.ndarray) -> None:
        np.divide(1, source, out=target)

    (y,) = BoundPlan(numpy_plan(core, {"y": divide})).run({"x": X})
    assert np.isinf(y[0, 0])


@pytest.mark.parametrize("where", [0, 1, 2, 4])
@pytest.mark.parametrize("times", [None, np.zeros(7, np.int64)], ids=["plain", "timed"])
def test_a_stopped_run_begins_no_further_step_and_the_next_run_is_whole(
    core: Core, where: int, times: Any
) -> None:
    entered: list[int] = []
    stop = Stop()
    stop.word = new_stop_word()

    def numbered(index: int) -> Callable[..., None]:
        def function(source: np.ndarray, target: np.ndarray) -> None:
            entered.append(index)
            if index == where and stop.error is None:
                stop.set(RequestCancelledError("enough"))
            double(source, target)

        return function

    functions = {f"n{index}": numbered(index) for index in (0, 1, 2, 4, 5)}
    ordered = {f"n{index}": functions.get(f"n{index}") for index in range(6)}
    bound = BoundPlan(numpy_plan(core, ordered))
    program = bound.programs.program(bound.plan, bound.lane)
    y = np.full_like(X, 7)
    with pytest.raises(RequestCancelledError, match="enough"):
        program.run((X, y), stop, times)
    assert (y == 7).all()
    assert entered == [index for index in (0, 1, 2, 4, 5) if index <= where]
    program.run((X, y), Stop(), times)
    np.testing.assert_array_equal(y, X * 32)


def test_each_run_may_bring_other_arrays(core: Core) -> None:
    bound = BoundPlan(numpy_plan(core, {"a": None, "b": double, "y": None}))
    for scale in range(5):
        (y,) = bound.run({"x": X * scale})
        np.testing.assert_array_equal(y, X * scale * 2)


WRONG = {
    "longer": np.zeros((3, 5), np.float32),
    "shorter": np.zeros((3, 3), np.float32),
    "of a wider type": X.astype(np.float64),
    "empty": np.zeros(0, np.float32),
    "a type without memory views": X.astype(DType.BFLOAT16.numpy),
    "not contiguous": np.zeros((4, 6), np.float32)[:, ::2],
}


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("functions", [{"y": None}, {"y": double}, {"a": None, "y": double}])
def test_an_array_that_is_not_as_the_plan_wants_it_is_refused(
    core: Core, functions: Any, given: str, place: int
) -> None:
    bound = BoundPlan(numpy_plan(core, functions))
    program = bound.programs.program(bound.plan, bound.lane)
    arrays = [X, np.full((3, 4), 7, np.float32)]
    wanted = arrays[1].copy()
    arrays[place] = WRONG[given]
    with pytest.raises(TensorError) as refused:
        program.run(tuple(arrays))
    if given in ("longer", "shorter", "of a wider type", "empty"):
        assert ("output 'y'" if place else "input 'x'") in str(refused.value)
        assert "float32[3, 4], 48 bytes" in str(refused.value)
    if place == 0:
        np.testing.assert_array_equal(arrays[1], wanted)  # nothing was run


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_plan_takes_as_many_arrays_as_it_has_ports(core: Core, count: int) -> None:
    bound = BoundPlan(numpy_plan(core, {"y": None}))
    program = bound.programs.program(bound.plan, bound.lane)
    with pytest.raises(TensorError, match=f"was given {count} arrays for 1 inputs and 1 outputs"):
        program.run((X,) * count)


def test_no_address_is_written_beyond_what_there_is(core: Core) -> None:
    plan = numpy_plan(core, {"a": None, "b": None, "y": None})
    by = step_runner(plan.engine)
    with pytest.raises(GraphError, match="does not lie in memory of 0 bytes"):
        Program(plan, by, aligned_bytes(0))
    beyond = dict.fromkeys(plan.offsets, plan.arena_bytes)
    with pytest.raises(GraphError, match="does not lie in memory"):
        Program(replace(plan, offsets=beyond), by, aligned_bytes(plan.arena_bytes))
    (first, *rest) = plan.steps
    source, target = first.operands
    for offset in (-4, 49, 2**40):
        lying = first._replace(operands=(source._replace(offset_bytes=offset), target))
        with pytest.raises(GraphError, match="is not in <Buffer input 48 bytes>"):
            Program(replace(plan, steps=(lying, *rest)), by, aligned_bytes(plan.arena_bytes))
