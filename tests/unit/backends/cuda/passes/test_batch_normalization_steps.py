"""A BatchNormalization that is no part of a convolution, as steps that join others."""

from __future__ import annotations

import numpy as np

from aioinfer.backends.cuda.passes import cuda_plan_passes
from aioinfer.backends.cuda.passes.batch_normalization_steps import BatchNormalizationSteps
from aioinfer.runtime.passes import DeadCode, run_passes
from unit.backends.accelerator.opened import typed
from unit.runtime.passes.small_models import evaluate, node_lines

TEXT = """g (float[2,3,4,4] x) => (float[2,3,4,4] y)
    <float[3] s = {1, 2, 3}, float[3] b = {4, 5, 6},
     float[3] m = {-1, 0, 1}, float[3] v = {1, 4, 9}> {
        a = BatchNormalization<epsilon=0.5>(x, s, b, m, v)
        y = Relu(a)
    }"""


def test_it_becomes_a_product_and_a_sum_that_give_the_same() -> None:
    model = typed(TEXT)
    inputs = {"x": np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)}
    (wanted,) = evaluate(model, inputs).values()
    run_passes(model, (BatchNormalizationSteps(), DeadCode()))
    assert [node.op_type for node in model.graph.nodes] == ["Mul", "Add", "Relu"]
    (found,) = evaluate(model, inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_what_follows_joins_it() -> None:
    model = typed(TEXT)
    run_passes(model, (*cuda_plan_passes(frozenset()), DeadCode()))
    (fused,) = model.graph.nodes
    assert [str(step).split("(")[0] for step in fused.attributes["steps"]] == ["Mul", "Add", "Relu"]


def test_statistics_that_come_with_the_run_stay_inputs() -> None:
    model = typed(TEXT.replace("x)", "x, float[3] n)", 1).replace("m, v)", "n, v)"))
    run_passes(model, (BatchNormalizationSteps(),))
    assert "BatchNormalization" in node_lines(model)[0]


def test_a_scale_that_the_type_cannot_hold_stays_as_it_is() -> None:
    text = (
        TEXT.replace("float[", "float16[").replace("{1, 4, 9}", "{0, 4, 9}").replace("0.5", "0.0")
    )
    model = typed(text)
    run_passes(model, (BatchNormalizationSteps(),))
    assert "BatchNormalization" in node_lines(model)[0]
