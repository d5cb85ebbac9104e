"""What fused groups and epilogues take in, printed; and that the answer stays the same."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.passes import plan_passes
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.passes import ConstantFolding, DeadCode, run_passes
from exhaustive import all_but
from onnx_text import parse
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator


def fused(text: str) -> list[str]:
    """Run the passes and print each node: `y = Conv(x, w, _, r) [Add(acc,i3) ...]`."""
    model: Model = parse(text)
    infer_types(model)
    run_passes(model, (ConstantFolding(), *plan_passes(), DeadCode()))
    lines = []
    for node in model.graph.nodes:
        inputs = ", ".join("_" if value is None else value.name for value in node.inputs)
        steps = " ".join(step.split(":")[0] for step in node.attributes.get("steps", ()))
        lines.append(
            f"{node.outputs[0].name} = {node.op_type}({inputs})" + f" [{steps}]" * bool(steps)
        )
    return lines


def test_a_fused_group_branches_and_joins() -> None:
    assert fused(
        """g (float[2,3] x, float[3] b) => (float[2,3] y) {
            s = Add(x, b)
            t = Sigmoid(s)
            y = Mul(s, t)
        }"""
    ) == ["y = FusedElementwise(x, b) [Add(i0,i1) Sigmoid(s0) Mul(s0,s1)]"]


def test_what_somebody_else_needs_stays_outside() -> None:
    assert fused(
        """g (float[2,3] x) => (float[2,3] y, float[2,3] s) {
            s = Exp(x)
            t = Neg(s)
            y = Abs(t)
        }"""
    ) == ["s = Exp(x)", "y = FusedElementwise(s) [Neg(i0) Abs(s0)]"]


def test_nothing_is_computed_once_for_each_element_that_it_is_broadcast_to() -> None:
    assert fused(
        """g (float[2,3] x, float[3] b) => (float[2,3] y) {
            e = Exp(b)
            y = Add(x, e)
        }"""
    ) == ["e = Exp(b)", "y = Add(x, e)"]


def test_a_fused_group_behind_a_matmul_becomes_its_epilogue() -> None:
    assert fused(
        """g (float[2,3] x, float[3,4] w, float[2,4] r) => (float[2,4] y) {
            p = MatMul(x, w)
            s = Add(r, p)
            y = Relu(s)
        }"""
    ) == ["y = MatMul(x, w, _, r) [Add(i3,acc) Relu(s0)]"]


def test_a_node_moves_to_where_its_residual_is_made() -> None:
    assert fused(
        """g (float[2,3] x, float[3,4] w, float[3,4] v) => (float[2,4] y) {
            p = MatMul(x, w)
            q = MatMul(x, v)
            y = Add(p, q)
        }"""
    ) == ["p = MatMul(x, w)", "y = MatMul(x, v, _, p) [Add(i3,acc)]"]


def test_a_fused_group_that_widens_the_result_stays_outside() -> None:
    assert fused(
        """g (float[1,3] x, float[3,4] w, float[5,4] r) => (float[5,4] y) {
            p = MatMul(x, w)
            y = Add(p, r)
        }"""
    ) == ["p = MatMul(x, w)", "y = Add(p, r)"]


@pytest.mark.parametrize("seed", all_but([0, 1], range(8)))
def test_random_groups_give_what_reference_gives(seed: int, core: Core) -> None:
    """Random directed graphs of elementwise nodes, whose results may all be used again."""
    random = np.random.default_rng(seed)
    shapes = [(3, 4, 5), (5,), (4, 1), (1,), (3, 1, 5)]
    inputs = {f"x{n}": random.random(shape).astype(np.float32) for n, shape in enumerate(shapes)}
    names, nodes = [*inputs], []
    for number in range(14):
        op_type = str(random.choice(["Add", "Mul", "Sub", "Max", "Tanh", "Sigmoid", "Abs", "Neg"]))
        count = 1 if op_type in ("Tanh", "Sigmoid", "Abs", "Neg") else 2
        used = [str(name) for name in random.choice(names[-6:], count)]
        nodes.append(operator(op_type, *used, outputs=[f"t{number}"]))
        nodes[-1].name = f"n{number}"
        names.append(f"t{number}")
    outputs = [names[-1], names[-4]]
    model = model_of(nodes, inputs, outputs)
    assert_same_as_reference(core, model, inputs)
