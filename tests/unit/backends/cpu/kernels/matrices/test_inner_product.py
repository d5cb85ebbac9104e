"""Weights that only oneDNN's inner product packs: on processors without AVX-512.

On others these tests run in a process of their own, in which oneDNN leaves AVX-512 alone.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from aioinfer.backends.cpu.kernels.matrices.inner_product import inner_product
from aioinfer.backends.cpu.onednn.bindings import Attributes, open_engine
from aioinfer.backends.cpu.programs.resized_plan import resized_plan
from aioinfer.runtime.graph import DType
from unit.backends.cpu.comparing import (
    F32_BOUND,
    assert_same_as_reference,
    has_wide_vectors,
    model_of,
)
from unit.backends.cpu.compiled_plans import BoundPlan, compiler_of, constants_of, plan_of
from unit.backends.cpu.single_nodes import largest_error

INNER, COLUMNS = 40, 512
CHANCE = np.random.default_rng(3)
ROOT = Path(__file__).parents[6]

without_wide_vectors = pytest.mark.usefixtures("narrow")


@pytest.fixture
def narrow() -> None:
    """Skip what test_processors_without_wide_vectors runs in another process."""
    if has_wide_vectors():
        pytest.skip("oneDNN's matmul packs weights in this process")


def drawn(*shape: int) -> np.ndarray:
    return CHANCE.standard_normal(shape).astype(np.float32)


def products(plan) -> list[str]:
    """List the implementations of the plan's matmuls and inner products."""
    return [
        step.implementation
        for step in plan.steps
        if step.implementation.startswith(("brgemm", "gemm"))
    ]


def test_processors_without_wide_vectors() -> None:
    if not has_wide_vectors():
        pytest.skip("the tests below run in this process")
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout
    assert " passed, 1 skipped" in done.stdout


@without_wide_vectors
@pytest.mark.parametrize("rows", [1, 2, 7, 64, 130])
@pytest.mark.parametrize("is_turned", [0, 1])
def test_bias_residual_and_activation_are_one_step(core, rows, is_turned) -> None:
    x, shift = drawn(rows, INNER), drawn(rows, COLUMNS)
    weights = {"w": drawn(COLUMNS, INNER) if is_turned else drawn(INNER, COLUMNS)}
    weights["b"] = drawn(COLUMNS)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"], transB=is_turned),
        helper.make_node("Add", ["g", "s"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    inputs = {"x": x, "s": shift}
    model = model_of(nodes, inputs, constants=weights)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2)
    plan = plan_of(core, model, inputs)
    assert products(plan) == ["brgemm:avx2"]
    assert len(plan.steps) == 1


@without_wide_vectors
def test_rows_of_other_lengths_are_left_to_the_matmul(core) -> None:
    x, weights = drawn(9, INNER), drawn(INNER, COLUMNS - 8)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ("y",), {"w": weights}
    )
    assert products(plan_of(core, model, {"x": x})) == ["gemm:jit:f32"]


@without_wide_vectors
def test_plans_of_all_lengths_and_teams_share_one_packing(core) -> None:
    weights = drawn(INNER, COLUMNS)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([node], {"x": drawn(1, 3, INNER)}, constants={"w": weights}, dynamic=True)
    compiler, held = compiler_of(core, model, threads=2), set()
    for length in (1, 2, 33, 128):
        x = drawn(1, length, INNER)
        bound = BoundPlan(compiler.compile({"x": x.shape}, {}))
        smaller = resized_plan(bound.plan, 1, compiler.weights)
        for plan in (bound, BoundPlan(smaller)):
            assert largest_error(plan.run({"x": x})[0], x @ weights) <= F32_BOUND
            held.update(map(id, constants_of(plan.plan, weights.nbytes)))
    assert len(held) == 1
    assert compiler.weights.packed_bytes == weights.nbytes


@without_wide_vectors
def test_an_exported_network_computes_the_same_bits(core) -> None:
    x = drawn(5, INNER)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([node], {"x": x}, constants={"w": drawn(INNER, COLUMNS)})
    with core.load_network(model, "CPU") as network:
        wanted = network.create_infer_request().infer_sync({"x": x})["y"]
        blob = network.export()
    with core.import_network(blob) as imported:
        found = imported.create_infer_request().infer_sync({"x": x})["y"]
    assert np.array_equal(found, wanted)


def test_other_element_types_are_left_to_the_matmul() -> None:
    engine = open_engine()
    left = engine.desc((8, INNER), DType.BFLOAT16)
    assert inner_product(engine, left, COLUMNS, False, Attributes(engine)) is None
