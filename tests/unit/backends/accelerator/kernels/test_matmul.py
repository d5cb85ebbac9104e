from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

SHAPES = [
    ((1, 1), (1, 1)),
    ((33, 17), (17, 65)),
    ((2, 3, 31, 20), (20, 9)),
    ((2, 1, 5, 6), (3, 6, 7)),
    ((4, 5, 6), (4, 6, 3)),
    ((6,), (6, 7)),
    ((3, 5, 6), (6,)),
    ((6,), (6,)),
    ((3, 0), (0, 4)),
]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_of_any_ranks(left, right, core: Core) -> None:
    inputs = {"x": random(*left), "w": random(*right)}
    model = model_of([operator("MatMul", "x", "w")], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(
    ("turned", "bias"),
    [((0, 0), None), ((1, 0), (1,)), ((0, 1), (9,)), ((1, 1), (40, 1)), ((0, 0), (40, 9))],
)
def test_gemm_turns_scales_and_adds(turned, bias, core: Core) -> None:
    left, right = (33, 40) if turned[0] else (40, 33), (9, 33) if turned[1] else (33, 9)
    constants = {"w": random(*right)} | ({} if bias is None else {"b": random(*bias)})
    inputs = {"x": random(*left)}
    node = operator(
        "Gemm", "x", *constants, alpha=0.5, beta=2.0, transA=turned[0], transB=turned[1]
    )
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


def test_bias_residual_and_activation_are_part_of_the_matmul(core: Core) -> None:
    inputs = {"x": random(2, 5, 12), "r": random(2, 5, 7)}
    nodes = [
        operator("MatMul", "x", "w", outputs=["p"]),
        operator("Add", "p", "b", outputs=["q"]),
        operator("Add", "q", "r", outputs=["s"]),
        operator("Gelu", "s"),
    ]
    constants = {"w": random(12, 7), "b": random(7)}
    model = model_of(nodes, inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)
    with core.load_network(model, "OPENCL") as network:
        assert [node.op_type for node in network.runtime_graph().nodes] == ["MatMul"]


def test_float16_is_summed_up_in_float32(core: Core) -> None:
    inputs = {"x": random(3, 600).astype(np.float16), "w": random(600, 4).astype(np.float16)}
    with core.load_network(model_of([operator("MatMul", "x", "w")], inputs), "OPENCL") as network:
        got = network.create_infer_request().infer_sync(inputs)["y"]
    exact = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, exact, rtol=1e-3)  # half of float16's last place
