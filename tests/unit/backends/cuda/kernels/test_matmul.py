"""Which operations of cuBLASLt and cuBLAS matmuls become; and that the numbers agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.backends.cuda.kernels.library_call import WORKSPACE_BYTES
from aioinfer.runtime.graph import DType
from exhaustive import all_but
from opencl_device import missing_reason
from unit.backends.comparing import assert_close, assert_same_on, model_of, operator, run
from unit.backends.cuda.kernels.plans import labels_of, operations_of, plan_of
from unit.backends.cuda.planning import cuda_core
from unit.backends.cuda.stand_in_driver import StandInDriver

LT = frozenset({"cublaslt", "cublas", "cudnn"})
PLAIN = frozenset({"cublas"})
BOUNDS = {"f32": 1e-5, "f16": 1e-2, "bf16": 6e-2}


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def linear(*behind: Any) -> Any:
    """Make x (2, 3, 16) times weights (16, 24) plus a bias, and nodes that read `s`."""
    nodes = [operator("MatMul", "x", "w", outputs=["p"]), operator("Add", "b", "p", outputs=["s"])]
    constants = {"w": drawn(16, 24), "b": drawn(24)}
    return model_of([*nodes, *behind], {"x": drawn(2, 3, 16)}, constants=constants)


def test_a_layer_says_all_that_its_plan_depends_on() -> None:
    plan = plan_of(linear(operator("Relu", "s")), {"x": drawn(2, 3, 16)}, LT)
    (operation,) = operations_of(plan)
    assert (operation.library, operation.label) == ("cublaslt", "matmul")
    assert dict(operation.parameters) == {
        "dtype": "float32",
        **{"batch": 1, "m": 6, "n": 24, "k": 16},
        **{"a_strides": (16, 1), "b_strides": (24, 1)},
        **{"a_batch_stride": 0, "b_batch_stride": 0},
        **{"has_bias": True, "has_residual": False, "activation": "relu"},
        **{"has_tf32": False, "workspace_bytes": WORKSPACE_BYTES},
    }
    (call,) = plan.launches
    shapes = [item.shape for item in call.operands]
    assert shapes == [(2, 3, 16), (16, 24), (24,), (2, 3, 24), (WORKSPACE_BYTES,)]


@pytest.mark.parametrize(
    ("precision", "dtype", "has_tf32"),
    [
        (F32, "float32", False),
        (Precision(has_tf32=True), "float32", True),
        (Precision(DType.FLOAT16, has_tf32=True), "float16", False),
        (Precision(DType.BFLOAT16), "bfloat16", False),
    ],
)
def test_precisions_are_those_of_the_network(
    precision: Precision, dtype: str, has_tf32: bool
) -> None:
    model = linear(operator("Relu", "s"))
    (operation,) = operations_of(plan_of(model, {"x": drawn(2, 3, 16)}, LT, precision))
    assert (operation["dtype"], operation["has_tf32"]) == (dtype, has_tf32)


def test_what_the_library_does_not_compute_is_one_more_launch() -> None:
    erf = operator("Gelu", "s")
    tanh = operator("Gelu", "s", approximate="tanh")
    x = {"x": drawn(2, 3, 16)}
    model = linear(erf)
    assert labels_of(plan_of(model, x, LT)) == ["MATMUL", "fused"]
    model = linear(tanh)
    assert labels_of(plan_of(model, x, LT)) == ["MATMUL"]


def test_cublas_multiplies_and_a_fused_group_does_the_rest() -> None:
    plan = plan_of(linear(operator("Relu", "s")), {"x": drawn(2, 3, 16)}, PLAIN)
    (operation,) = operations_of(plan)
    assert labels_of(plan) == ["MATMUL", "fused"]
    assert (operation.library, operation["has_bias"], operation["activation"]) == (
        *("cublas", False, None),
    )
    assert operation["workspace_bytes"] == 0


def test_without_a_library_it_is_the_kernel_of_all_accelerators() -> None:
    model = linear(operator("Relu", "s"))
    assert labels_of(plan_of(model, {"x": drawn(2, 3, 16)}, frozenset())) == ["matmul"]


def test_batches_that_are_no_single_stride_are_left_to_the_kernel_of_all_accelerators() -> None:
    inputs = {"x": drawn(2, 3, 4, 5), "w": drawn(3, 5, 6)}
    model = model_of([operator("MatMul", "x", "w")], inputs)
    assert labels_of(plan_of(model, inputs, LT)) == ["matmul"]


def test_plans_share_weights_that_are_turned() -> None:
    inputs, constants = {"x": drawn(4, 16)}, {"w": drawn(16, 10)}
    model = model_of([operator("MatMul", "x", "w")], inputs, constants=constants)
    plan = plan_of(model, inputs, LT, Precision(DType.FLOAT16))
    (operation,) = operations_of(plan)
    assert operation["b_strides"] == (1, 16)
    assert [buffer.size_bytes for buffer in plan.constants] == [16 * 10 * 2]


@pytest.fixture(scope="module", params=[LT, PLAIN], ids=["cublaslt", "cublas"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    """Give CUDA with one library or the other."""
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with cuda_core(StandInDriver(request.param), "STANDIN") as made:
        yield made


CHANCES = range(4)
_EPILOGUES: dict[str, list[Any]] = {
    "none": [],
    "relu": [operator("Relu", "t0", outputs=["t1"])],
    "bias, tanh gelu": [
        operator("Add", "t0", "row", outputs=["t1"]),
        operator("Gelu", "t1", outputs=["t2"], approximate="tanh"),
    ],
    "bias, residual, relu": [
        operator("Add", "t0", "row", outputs=["t1"]),
        operator("Add", "map", "t1", outputs=["t2"]),
        operator("Relu", "t2", outputs=["t3"]),
    ],
    "residual, swish": [
        operator("Add", "t0", "map", outputs=["t1"]),
        operator("Sigmoid", "t1", outputs=["t2"]),
        operator("Mul", "t1", "t2", outputs=["t3"]),
    ],
    "a column and a number": [
        operator("Mul", "t0", "column", outputs=["t1"]),
        operator("Sub", "number", "t1", outputs=["t2"]),
    ],
}


def random_matmul(chance: np.random.Generator, place: int) -> tuple[list[Any], dict[str, Any]]:
    """Draw a MatMul or a Gemm whose result is `t0` of a case, and what it reads."""
    m, n, k = (int(number) for number in chance.integers(1, 20, 3))
    if chance.random() < 0.4:
        turns = [bool(flag) for flag in chance.integers(0, 2, 2)]
        arrays = {
            "a": drawn(*((k, m) if turns[0] else (m, k)), seed=place),
            "b": drawn(*((n, k) if turns[1] else (k, n)), seed=place + 1),
        }
        numbers = {"transA": int(turns[0]), "transB": int(turns[1])}
        if chance.random() < 0.3:
            numbers.update(alpha=0.5, beta=2.0)  # type: ignore[call-overload]
        inputs = ["a", "b"]
        if chance.random() < 0.6:
            shapes = [(n,), (1, n), (m, 1), (m, n), ()]
            arrays["c"] = drawn(*shapes[int(chance.integers(0, len(shapes)))], seed=place + 2)
            inputs.append("c")
        return [operator("Gemm", *inputs, outputs=["t0"], **numbers)], arrays
    batch = [int(number) for number in chance.integers(1, 4, chance.integers(0, 3))]
    lefts = [1 if chance.random() < 0.3 else length for length in batch]
    rights = [1 if chance.random() < 0.3 else length for length in batch]
    rights = rights[int(chance.integers(0, len(batch) + 1)) :]
    arrays = {"a": drawn(*lefts, m, k, seed=place), "b": drawn(*rights, k, n, seed=place + 1)}
    return [operator("MatMul", "a", "b", outputs=["t0"])], arrays


def random_model(seed: int) -> tuple[Any, dict[str, Any]]:
    """Join a matmul for each kind of what follows to one model."""
    chance = np.random.default_rng(seed)
    nodes: list[Any] = []
    inputs: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    outputs = []
    for place, behind in enumerate(_EPILOGUES.values()):
        own, arrays = random_matmul(chance, 10 * seed + place)
        a, b = arrays["a"], arrays["b"]
        turns = {item.name: bool(item.i) for item in own[0].attribute if "trans" in item.name}
        made = (a.T if turns.get("transA") else a) @ (b.T if turns.get("transB") else b)
        arrays["map"], arrays["row"] = drawn(*made.shape, seed=seed), drawn(made.shape[-1])
        arrays["column"] = drawn(*made.shape[:-1], 1)
        arrays["number"] = np.float32(0.5)
        graph = [*own, *behind]
        used = {name for node in graph for name in node.input}
        for name, array in arrays.items():
            if name in used:
                is_known = name == "number" or (name != "a" and chance.random() < 0.5)
                (constants if is_known else inputs)[f"{name}_{place}"] = np.asarray(array)
        for number, node in enumerate(graph):
            names = [f"{name}_{place}" for name in node.input]
            made_names = [f"{name}_{place}" for name in node.output]
            node = type(node).FromString(node.SerializeToString())
            node.name = f"{node.op_type}_{place}_{number}"
            del node.input[:], node.output[:]
            node.input.extend(names)
            node.output.extend(made_names)
            nodes.append(node)
        outputs.append(f"{graph[-1].output[0]}_{place}")
    return model_of(nodes, inputs, outputs, constants), inputs


@pytest.mark.parametrize("seed", all_but([CHANCES[0]], CHANCES))
def test_random_matmuls_give_what_reference_gives(seed: int, core: Core) -> None:
    model, inputs = random_model(seed)
    wanted = run(core, model, "REFERENCE", inputs)
    for hint, bound in BOUNDS.items():
        found = run(core, model, "STANDIN", inputs, INFERENCE_PRECISION_HINT=hint)
        for name, expected in wanted.items():
            assert_close(f"{name} {hint}", found[name], expected, bound)


@pytest.mark.parametrize(
    ("left", "right"), [((5,), (5, 4)), ((3, 5), (5,)), ((5,), (5,)), ((2, 3, 5), (5,))]
)
def test_vectors(left: tuple[int, ...], right: tuple[int, ...], core: Core) -> None:
    inputs = {"x": drawn(*left), "w": drawn(*right)}
    nodes = [operator("MatMul", "x", "w", outputs=["p"]), operator("Add", "p", "p")]
    assert_same_on("STANDIN", core, model_of(nodes, inputs), inputs)


def test_a_matmul_of_nothing_is_zero(core: Core) -> None:
    inputs = {"x": np.zeros((3, 0), np.float32), "w": np.zeros((0, 4), np.float32)}
    assert_same_on("STANDIN", core, model_of([operator("MatMul", "x", "w")], inputs), inputs)
