"""Convolutions of open batches on one thread: a primitive for one image, run for each."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.windows import convolution
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import Engine, aligned_bytes
from aioinfer.backends.cpu.plans.step_bounds import find_part_overrun
from aioinfer.backends.cpu.plans.steps import PrimitiveStep
from aioinfer.backends.cpu.programs.program import Program
from aioinfer.errors import GraphError
from unit.backends.cpu.comparing import BF16_BOUND, F32_BOUND, assert_same_as_reference, model_of
from unit.backends.cpu.compiled_plans import compiler_of
from unit.backends.cpu.kernels.windows.test_convolution import CONVOLUTIONS, operands

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
RANDOM = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _small_images_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "LEAST_WORK", 0)


def images(count: int, channels: int = 16) -> np.ndarray:
    return RANDOM.standard_normal((count, channels, 6, 7)).astype(np.float32)


def block(is_needed_later: bool = False) -> Any:
    """Two convolutions with a bias and a residual, and factors of the channels and of images."""
    last = "a" if is_needed_later else "r"
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "v"], ["c"], "second"),
        helper.make_node("Add", ["c", "a"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], "third"),
        helper.make_node("Mul", ["d", "f"], ["m"]),
        helper.make_node("ReduceMean", ["r"], ["g"], axes=[1, 2, 3], keepdims=1),
        helper.make_node("Mul", ["m", "g"], ["n"]),
        helper.make_node("Add", ["n", last], ["y"]),
    ]
    shapes = {"w": (16, 16, 3, 3), "v": (16, 16, 1, 1), "b": (16,), "f": (1, 16, 1, 1)}
    constants = {
        name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    return model_of(nodes, {"x": images(1)}, constants=constants, dynamic=True, opset=17)


def plan_by_images(core: Core, model: Any, count: int) -> Any:
    return compiler_of(core, model).compile({"x": (count, 16, 6, 7)}, {})


def steps_by_images(plan: Any) -> list[PrimitiveStep]:
    return [step for step in plan.steps if isinstance(step, PrimitiveStep) and step.moves]


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_any_convolution_equals_reference(core: Core, name: str, precision: str) -> None:
    (_, *dims), weight_shape, attributes = CONVOLUTIONS[name]
    every = operands((3, *dims), weight_shape, weight_shape[0])
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    constants = {key: every[key] for key in "wb"}
    model = model_of([node], {"x": every["x"]}, constants=constants, dynamic=True)
    bound = F32_BOUND if precision == "f32" else BF16_BOUND
    config = {**ONE_THREAD, "INFERENCE_PRECISION_HINT": precision}
    assert_same_as_reference(core, model, {"x": every["x"]}, bound=bound, **config)


@pytest.mark.parametrize("is_needed_later", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_follows_is_applied_to_each_image(
    core: Core, is_needed_later: bool, count: int
) -> None:
    model, given = block(is_needed_later), {"x": images(count)}
    assert_same_as_reference(core, model, given, **ONE_THREAD)
    assert len(steps_by_images(plan_by_images(core, model, count))) == (0 if count == 1 else 3)


def test_answers_have_the_bits_of_a_network_for_that_batch_alone(core: Core) -> None:
    proto, given = block(), images(4)
    fixed = core.read_model(proto)
    fixed.reshape({"x": given.shape})
    found, wanted = (
        core.load_network(model, "CPU", ONE_THREAD).create_infer_request().infer_sync({"x": given})
        for model in (proto, fixed)
    )
    assert np.array_equal(found["y"], wanted["y"])


def test_a_new_batch_describes_no_convolution(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    describe = Engine.primitive_desc

    def noted(self: Engine, call: str, *arguments: Any) -> Any:
        described.append(call)
        return describe(self, call, *arguments)

    monkeypatch.setattr(Engine, "primitive_desc", noted)
    model = core.read_model(block())
    model.reshape({"x": ("n", 16, 6, 7)})
    with core.load_network(model, "CPU", ONE_THREAD) as network:
        request = network.create_infer_request()
        for count in (2, 3):
            request.infer_sync({"x": images(count)})
        assert "convolution_forward" in described
        described.clear()
        given = {"x": images(7)}
        found = request.infer_sync(given)["y"]
        assert "convolution_forward" not in described
        assert network.statistics().plans.build_count == 3
    wanted = core.load_network(model, "REFERENCE").create_infer_request().infer_sync(given)["y"]
    assert np.abs(found - wanted).max() <= F32_BOUND * np.abs(wanted).max()


def test_teams_and_networks_of_one_batch_take_whole_batches(core: Core) -> None:
    model = block()
    fixed = core.read_model(model)
    fixed.reshape({"x": (4, 16, 6, 7)})
    assert not steps_by_images(plan_by_images(core, fixed, 4))
    team = compiler_of(core, model, threads=2).compile({"x": (40, 16, 60, 70)}, {})
    assert team.thread_count == 2
    assert not steps_by_images(team)


def test_plans_come_back_from_a_blob(core: Core) -> None:
    given, blob = [images(count) for count in (1, 2, 3, 5)], io.BytesIO()
    with core.load_network(block(), "CPU", ONE_THREAD) as network:
        request = network.create_infer_request()
        wanted = [request.infer_sync({"x": item})["y"] for item in given]
        network.export(blob)
    with core.import_network(blob.getvalue()) as network:
        request = network.create_infer_request()
        for item, result in zip(given, wanted, strict=True):
            assert np.array_equal(request.infer_sync({"x": item})["y"], result)


def test_a_new_batch_after_an_import_takes_the_weights_of_the_blob(core: Core) -> None:
    """They are packed for one thread, and threads that compile may have more."""
    weight = RANDOM.standard_normal((24, 24, 3, 3)).astype(np.float32)
    two, three = (RANDOM.standard_normal((count, 24, 1, 1)).astype(np.float32) for count in (2, 3))
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    model = model_of(nodes, {"x": two}, constants={"w": weight}, dynamic=True)
    with core.load_network(model, "CPU", ONE_THREAD) as network:
        wanted = network.create_infer_request().infer_sync({"x": three})["y"]
    with core.load_network(model, "CPU", ONE_THREAD) as network:
        network.create_infer_request().infer_sync({"x": two})
        blob = network.export()
    with core.import_network(blob) as network:
        found = network.create_infer_request().infer_sync({"x": three})["y"]
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("more", [1, 2**40, 2**61])
def test_no_image_lies_beyond_its_buffer(core: Core, more: int) -> None:
    plan = plan_by_images(core, block(), 3)
    plan.pack()
    place, step = next(
        (place, step) for place, step in enumerate(plan.steps) if step in steps_by_images(plan)
    )
    arguments, count = list(step.arguments), step.part_count
    assert find_part_overrun(step.desc, arguments, count, step.moves) is None
    assert find_part_overrun(step.desc, arguments, count + more, step.moves)
    assert find_part_overrun(step.desc, arguments, 0, step.moves)
    assert find_part_overrun(step.desc, arguments, count, step.moves[1:])
    assert find_part_overrun(step.desc, arguments, count, [-move for move in step.moves])
    assert find_part_overrun(step.desc, arguments, count, ())
    farther = tuple([move and move + more for move in step.moves])
    assert find_part_overrun(step.desc, arguments, count, farther)
    by = step_runner(plan.engine)
    Program(plan, by, aligned_bytes(plan.arena_bytes))
    for wrong in ({"part_count": count + more}, {"moves": farther}, {"part_count": 0}):
        steps = list(plan.steps)
        steps[place] = step._replace(**wrong)
        with pytest.raises(GraphError, match="parts, one every"):
            Program(replace(plan, steps=tuple(steps)), by, aligned_bytes(plan.arena_bytes))
