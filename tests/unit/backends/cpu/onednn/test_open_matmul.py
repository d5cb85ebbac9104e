"""Matmuls that are compiled once for all lengths: the bits of those compiled for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.backends.cpu.onednn.bindings import ARG, Attributes, Engine, open_engine
from aioinfer.backends.cpu.onednn.open_matmul import OpenPrimitiveDesc
from aioinfer.backends.cpu.onednn.post_ops import PostOp
from aioinfer.backends.cpu.onednn.traced_engine import TracedEngine
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.steps import PrimitiveStep
from aioinfer.backends.cpu.programs.resized_plan import closed_plan
from aioinfer.runtime.graph import DType
from aioinfer.runtime.graph.sym_int import Trace
from unit.backends.cpu.compiled_plans import BoundPlan, compiler_of

node = helper.make_node
RANDOM = np.random.default_rng(3)
FLOAT = DType.FLOAT32


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def block(width: int = 160) -> Any:
    """A layer with all kinds of matmul: packed weights, a residual, and batches of both sides.

    One with ``width`` columns of 512 is an inner product without AVX-512.
    """
    nodes = [
        node("MatMul", ["x", "w0"], ["m0"]),
        node("Add", ["m0", "b0"], ["e"]),
        node("MatMul", ["e", "w1"], ["m1"]),
        node("Add", ["m1", "b1"], ["a1"]),
        node("Relu", ["a1"], ["r"]),
        node("MatMul", ["r", "w2"], ["m2"]),
        node("Add", ["m2", "e"], ["s"]),
        node("Reshape", ["s", "heads"], ["h"]),
        node("Transpose", ["h"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["h"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "joined"], ["j"]),
        node("MatMul", ["j", "w3"], ["y"]),
    ]
    constants = {
        "w0": weights(48, 96), "b0": weights(96), "w1": weights(96, width), "b1": weights(width),
        "w2": weights(width, 96), "w3": weights(96, 64),
        "heads": np.array([0, 0, 4, 24]), "joined": np.array([0, 0, 96]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "l", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def engine() -> Engine:
    """The engine of a processor whose matmuls take open lengths."""
    engine = open_engine()
    sides = engine.desc((64, 64), FLOAT)
    made = engine.primitive_desc("matmul", engine, sides, sides, None, sides, Attributes(engine))
    if made.implementation != "gemm:jit:f32":
        pytest.skip(f"this processor multiplies by {made.implementation}")
    return engine


def steps_of(plan: Plan) -> list[PrimitiveStep]:
    return [step for step in plan.steps if isinstance(step, PrimitiveStep)]


def opened(plan: Plan) -> list[Any]:
    return [desc for desc in plan.table.primitive_descs if isinstance(desc, OpenPrimitiveDesc)]


@pytest.mark.parametrize("width", [160, 512])
@pytest.mark.parametrize("threads", [1, 2])
def test_answers_have_the_bits_of_plans_that_are_built_alone(
    core: Core, threads: int, width: int
) -> None:
    compiler = compiler_of(core, block(width), threads=threads)
    compiler.compile({"x": (2, 40, 48)}, {})
    lengths = [
        (3, 41),
        (1, 64),
        (1, 1),
        (2, 1),
        (1, 2),
        (5, 7),
        (1, 200),
        (4, 4),
        (24, 24),
        (2, 96),
    ]
    for count, length in (*lengths, *reversed(lengths)):
        shapes = {"x": (count, length, 48)}
        plan = compiler.compile(shapes, {})
        builder = compiler._builder(shapes, {}, compiler.engine)
        with compiler.engine.with_threads(builder.thread_count):
            alone = builder.build(KERNELS.lower)
        closed = closed_plan(plan, compiler.weights)
        assert closed is not None
        x = RANDOM.standard_normal(shapes["x"]).astype(np.float32)
        bound = BoundPlan(plan)
        bound.poison(255)
        (found,), (wanted,), (written,) = (
            item.run({"x": x}) for item in (bound, BoundPlan(alone), BoundPlan(closed))
        )
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(written, wanted)
    assert compiler._templates


def test_a_new_length_compiles_no_matmul(
    core: Core, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = compiler_of(core, block())
    for length in (40, 41):
        compiler.compile({"x": (2, length, 48)}, {})
    calls: list[str] = []
    describe = Engine.primitive_desc

    def noted(self: Engine, call: str, *arguments: Any) -> Any:
        calls.append(call)
        return describe(self, call, *arguments)

    monkeypatch.setattr(Engine, "primitive_desc", noted)
    plan = compiler.compile({"x": (3, 50, 48)}, {})
    assert len(opened(plan)) == 6
    assert not calls


def test_a_plan_for_a_blob_has_primitives_of_its_own_lengths(core: Core, engine: Engine) -> None:
    """The library adds a residual in memory of its own where lengths are known."""
    compiler = compiler_of(core, block())
    for length in (40, 41):
        plan = compiler.compile({"x": (2, length, 48)}, {})
    BoundPlan(plan).run({"x": np.zeros((2, 41, 48), np.float32)})
    closed = closed_plan(plan, compiler.weights)
    assert closed is not None
    assert opened(plan)
    assert not opened(closed)
    for step in steps_of(closed):
        assert (step.desc.argument(ARG.SCRATCHPAD)[1] > 0) == (
            ARG.SCRATCHPAD in dict(step.arguments)
        )
    assert closed_plan(closed, compiler.weights) is closed


def traced_call(engine: Engine, sides: Any, **others: Any) -> Any:
    """Describe a matmul whose sides are made of free lengths of 5, 6 and 7."""
    trace = Trace((5, 6, 7))
    traced = TracedEngine(engine, trace)
    src, right, dst = (traced.desc(dims, FLOAT) for dims in sides(*trace.variables()))
    attributes = Attributes(engine, others.get("post_ops", ()))
    return traced.primitive_desc("matmul", traced, src, right, None, dst, attributes)


def test_lengths_that_agree_by_chance_stay_as_they_are(engine: Engine) -> None:
    """A batch of one is repeated for that one alone."""
    assert isinstance(
        traced_call(engine, lambda a, b, c: ((1, a, b), (1, b, c), (1, a, c))), OpenPrimitiveDesc
    )
    repeated = traced_call(engine, lambda a, b, c: ((b, a, 4), (b - 5, 4, c), (b, a, c)))
    assert not isinstance(repeated, OpenPrimitiveDesc)


def test_an_argument_that_is_described_otherwise_is_refused(engine: Engine) -> None:
    made = traced_call(engine, lambda a, b, c: ((a, b), (b, c), (a, c)))
    given = made.desc("exec_arg", ARG.DST)
    assert made.find_misfit([(ARG.DST, given)]) is None
    wide = engine.desc((5, 7), FLOAT)
    assert "argument 17" in (made.find_misfit([(ARG.DST, wide)]) or "")


def test_a_post_op_of_the_results_lengths_keeps_the_call_closed(engine: Engine) -> None:
    made = traced_call(
        engine,
        lambda a, b, c: ((a, 4), (4, 8), (a, 8)),
        post_ops=[(PostOp.binary("add", 2), engine.desc((1, 8), FLOAT))],
    )
    assert isinstance(made, OpenPrimitiveDesc)
    trace = Trace((5,))
    traced, (rows,) = TracedEngine(engine, trace), trace.variables()
    src, right, dst = (traced.desc(dims, FLOAT) for dims in ((rows, 4), (4, 8), (rows, 8)))
    attributes = Attributes(engine, [(PostOp.binary("add", 2), dst)])
    made = traced.primitive_desc("matmul", traced, src, right, None, dst, attributes)
    assert not isinstance(made, OpenPrimitiveDesc)
