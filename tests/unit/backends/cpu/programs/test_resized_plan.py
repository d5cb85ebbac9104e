"""Plans for smaller teams: the same answers from the same weights, in the same layouts."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.kernels.windows.convolution_choice import is_slow
from aioinfer.backends.cpu.onednn.bindings import ARG
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.steps import PrimitiveStep
from aioinfer.backends.cpu.programs.resized_plan import resized_plan
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import BoundPlan, compiler_of

node = helper.make_node


def floats(*shape: int) -> np.ndarray:
    chance = np.random.default_rng(len(shape) + sum(shape))
    return (chance.standard_normal(shape) * 0.3).astype(np.float32)


IMAGE = {"x": floats(1, 24, 28, 28)}
WORDS = {"x": floats(12, 2, 40)}
NETWORKS: dict[str, tuple[list[Any], dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "convolutions": (
        [
            node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"]),
            node("Conv", ["b", "w2"], ["c"], group=48, pads=[1, 1, 1, 1]),
            node("Add", ["c", "b"], ["d"]),
            node("MaxPool", ["d"], ["e"], kernel_shape=[3, 3], strides=[2, 2]),
            node("ConvTranspose", ["e", "w3"], ["f"], strides=[2, 2]),
            node("Concat", ["f", "f"], ["g"], axis=1),
            node("Conv", ["g", "w4"], ["y"], strides=[2, 2]),
        ],
        IMAGE,
        {
            "w1": floats(48, 24, 3, 3),
            "b1": floats(48),
            "w2": floats(48, 1, 3, 3),
            "w3": floats(48, 16, 2, 2),
            "w4": floats(64, 32, 1, 1),
        },
    ),
    "a convolution that wants other weights for one thread": (
        [node("Conv", ["x", "w"], ["y"])],
        {"x": floats(1, 1024, 14, 14)},
        {"w": floats(512, 1024, 1, 1) / 8},
    ),
    "products": (
        [
            node("MatMul", ["x", "w1"], ["a"]),
            node("Gelu", ["a"], ["b"]),
            node("MatMul", ["b", "w2"], ["c"]),
            node("Add", ["c", "x"], ["d"]),
            node("LayerNormalization", ["d", "s", "t"], ["e"]),
            node("Softmax", ["e"], ["y"]),
        ],
        {"x": floats(2, 90, 96)},
        {"w1": floats(96, 200), "w2": floats(200, 96), "s": floats(96), "t": floats(96)},
    ),
    "recurrent layers": (
        [
            node("LSTM", ["x", "w", "r"], ["a"], hidden_size=64, direction="bidirectional"),
            node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
            node("Reshape", ["b", "shape"], ["c"]),
            node("GRU", ["c", "w2", "r2"], ["y"], hidden_size=64, linear_before_reset=1),
        ],
        WORDS,
        {
            "w": floats(2, 256, 40),
            "r": floats(2, 256, 64),
            "shape": np.array([12, 2, 128]),
            "w2": floats(1, 192, 128),
            "r2": floats(1, 192, 64),
        },
    ),
}


@pytest.fixture(params=NETWORKS)
def compiled(request: pytest.FixtureRequest, core: Core) -> tuple[Compiler, Plan, Any]:
    nodes, inputs, constants = NETWORKS[request.param]
    model = model_of(nodes, inputs, constants=constants, opset=20)
    made = compiler_of(core, model, threads=2)
    plan = made.compile({name: array.shape for name, array in inputs.items()}, {})
    assert plan.thread_count == 2
    return made, plan, inputs


def test_a_smaller_team_gives_the_same_answers(compiled: Any) -> None:
    made, plan, inputs = compiled
    (wanted,) = BoundPlan(plan).run(inputs)
    small = resized_plan(plan, 1, made.weights)
    assert small is not None
    bound = BoundPlan(small)
    bound.poison(255)
    (got,) = bound.run(inputs)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert small.made_of is not None
    assert (small.thread_count, small.made_of(), small.id) == (1, plan, plan.id)
    assert small.can_shrink
    assert not small.resized


def test_plans_of_both_teams_are_gone_without_the_collector(core: Core, no_collector: None) -> None:
    """They hold constants, whose memory a closed network gives back at once."""
    nodes, inputs, constants = NETWORKS["products"]
    made = compiler_of(core, model_of(nodes, inputs, constants=constants, opset=20), threads=2)
    plan = made.compile({name: array.shape for name, array in inputs.items()}, {})
    BoundPlan(plan).run(inputs)
    small = plan.resized[1] = resized_plan(plan, 1, made.weights)
    assert small is not None
    gone = [weakref.ref(plan), weakref.ref(small)]
    del plan, small, made
    assert [item() for item in gone] == [None, None]


def test_both_teams_share_their_packed_weights(compiled: Any) -> None:
    made, plan, inputs = compiled
    BoundPlan(plan).run(inputs)
    before = made.weights.packed_bytes
    small = resized_plan(plan, 1, made.weights)
    assert small is not None
    assert set(plan.weights) <= set(small.weights)
    assert made.weights.packed_bytes <= 2.1 * before


def test_a_smaller_team_computes_by_implementations_as_quick(compiled: Any) -> None:
    made, plan, inputs = compiled
    BoundPlan(plan).run(inputs)
    small = resized_plan(plan, 1, made.weights)
    assert small is not None
    for step, other in zip(plan.steps, small.steps, strict=True):
        assert is_slow(step.implementation) or not is_slow(other.implementation)


def test_weights_are_packed_again_where_their_layout_would_be_slow(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, plan, inputs = compiled
    (wanted,) = BoundPlan(plan).run(inputs)
    asked = itertools.count()  # each step asks of its first try, of the original, of its second
    monkeypatch.setattr(
        "aioinfer.backends.cpu.programs.resized_plan.is_slow", lambda _name: next(asked) % 3 == 0
    )
    small = resized_plan(plan, 1, made.weights)
    assert small is not None
    (got,) = BoundPlan(small).run(inputs)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_plan_without_quick_primitives_for_one_thread_has_none(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, plan, inputs = compiled
    BoundPlan(plan).run(inputs)
    asked = itertools.count()  # of the first try, of the original, of the second try
    monkeypatch.setattr(
        "aioinfer.backends.cpu.programs.resized_plan.is_slow", lambda _name: next(asked) % 3 != 1
    )
    assert resized_plan(plan, 1, made.weights) is None


def test_only_scratchpads_and_what_is_packed_again_differ(compiled: Any) -> None:
    made, plan, inputs = compiled
    BoundPlan(plan).run(inputs)
    small = resized_plan(plan, 1, made.weights)
    assert small is not None
    for step, other in zip(plan.steps, small.steps, strict=True):
        if isinstance(step, PrimitiveStep) and isinstance(other, PrimitiveStep):
            known, given = dict(step.arguments), dict(other.arguments)
            differing = {role for role in known | given if known.get(role) != given.get(role)}
            packed_again = set(small.weights) - set(plan.weights)
            assert differing <= {ARG.SCRATCHPAD, *([ARG.WEIGHTS] if packed_again else [])}
        else:
            assert other is step
