"""MatMul and Gemm equal REFERENCE in all forms, and run on oneDNN's fast kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.runtime.graph import DType, Node, TensorType, Value
from exhaustive import drawn
from unit.backends.cpu.comparing import (
    BF16_BOUND,
    F32_BOUND,
    assert_same_as_reference,
    has_wide_vectors,
    model_of,
)
from unit.backends.cpu.compiled_plans import BoundPlan, compiler_of, constants_of
from unit.backends.cpu.single_nodes import (
    largest_error,
    model_of_nodes,
    plan_of,
    run_fused,
    run_plan,
    value_of,
)

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
MATMUL = helper.make_node("MatMul", ["a", "b"], ["y"])

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((1, 1), (1, 1)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((3, 4), (2, 4, 5)),
    ((7, 2, 3, 4), (1, 1, 4, 5)),
    ((2, 1, 3, 1, 4, 3), (3, 1, 5, 3, 2)),
    ((0, 4), (4, 5)),
    ((3, 4), (4, 0)),
    ((3, 0), (0, 5)),
    ((2, 3, 0), (2, 0, 5)),
]


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    return [chance.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("constant", ["a", "b", None])
def test_all_ranks_multiply(core, left, right, constant) -> None:
    every = dict(zip("ab", arrays(left, right), strict=True))
    constants = {name: array for name, array in every.items() if name == constant}
    inputs = {name: array for name, array in every.items() if name != constant}
    model = model_of([MATMUL], inputs, constants=constants, dynamic=True)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_bfloat16_is_near(core, left, right) -> None:
    a, b = arrays(left, right)
    model = model_of([MATMUL], {"a": a}, constants={"b": b})
    config = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 2}
    assert_same_as_reference(core, model, {"a": a}, bound=BF16_BOUND, **config)


@st.composite
def matmuls(draw):
    """Draw two shapes that multiply, with batches that broadcast."""
    batch = draw(st.lists(st.integers(1, 3), max_size=3))
    sides = []
    for _ in range(2):
        axes = batch[draw(st.integers(0, len(batch))) :]
        sides.append([1 if draw(st.booleans()) else axis for axis in axes])
    rows, inner, columns = (draw(st.integers(1, 33)) for _ in range(3))
    return (*sides[0], rows, inner), (*sides[1], inner, columns)


@EXAMPLES
@given(shapes=matmuls(), is_constant=st.booleans(), threads=st.sampled_from([1, 2]))
def test_random_matmuls(core, shapes, is_constant, threads) -> None:
    a, b = arrays(*shapes)
    inputs = {"a": a} if is_constant else {"a": a, "b": b}
    model = model_of([MATMUL], inputs, constants={"b": b} if is_constant else {})
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("c", [None, (5,), (1, 5), (3, 1), (3, 5), (1,), (), (1, 1)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_gemm_adds_any_c(core, c, alpha, beta, is_constant) -> None:
    every = dict(zip("abc", arrays((3, 4), (4, 5), c or ()), strict=True))
    if c is None:
        del every["c"]
    node = helper.make_node("Gemm", [*every], ["y"], alpha=alpha, beta=beta)
    inputs = {"a": every["a"]} if is_constant else every
    constants = {name: array for name, array in every.items() if name not in inputs}
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


@EXAMPLES
@given(
    lengths=st.tuples(*[st.integers(1, 40)] * 3),
    is_turned=st.tuples(st.booleans(), st.booleans()),
    is_constant=st.booleans(),
    c=st.sampled_from([None, "row", "column", "whole"]),
)
def test_random_gemms(core, lengths, is_turned, is_constant, c) -> None:
    rows, inner, columns = lengths
    shapes = [(rows, inner), (inner, columns)]
    shapes = [
        shape[::-1] if turned else shape for shape, turned in zip(shapes, is_turned, strict=True)
    ]
    kinds = {"row": (columns,), "column": (rows, 1), "whole": (rows, columns)}
    if c is not None:
        shapes.append(kinds[c])
    every = dict(zip("abc", arrays(*shapes), strict=False))
    trans_a, trans_b = map(int, is_turned)
    node = helper.make_node("Gemm", [*every], ["y"], transA=trans_a, transB=trans_b)
    inputs = {"a": every["a"]} if is_constant else every
    constants = {name: array for name, array in every.items() if name not in inputs}
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


@pytest.mark.parametrize("name", ["a", "b"])
def test_turned_views_are_multiplied(core, name) -> None:
    inputs = dict(zip("ab", arrays((2, 3, 7, 4), (2, 3, 5, 4)), strict=True))
    perms = {"a": [0, 1, 2, 3], "b": [0, 1, 3, 2]}
    if name == "a":
        inputs["a"] = inputs["a"].transpose(3, 1, 0, 2).copy()
        perms["a"] = [2, 1, 3, 0]
    nodes = [
        helper.make_node("Transpose", ["a"], ["at"], perm=perms["a"]),
        helper.make_node("Transpose", ["b"], ["bt"], perm=perms["b"]),
        helper.make_node("MatMul", ["at", "bt"], ["y"]),
    ]
    assert_same_as_reference(core, model_of(nodes, inputs), inputs)


def test_an_expanded_side_is_not_multiplied_slowly() -> None:
    a, b = arrays((1, 3, 4), (2, 4, 5))
    values = [value_of("a", a), value_of("b", b)]
    shape = Value("shape", TensorType(DType.INT64, (3,)), np.array([2, 3, 4]))
    wide = Value("w", TensorType(DType.FLOAT32, (2, 3, 4)))
    result = Value("y", TensorType(DType.FLOAT32, (2, 3, 5)))
    nodes = [
        Node("Expand", [values[0], shape], [wide], name="expand"),
        Node("MatMul", [wide, values[1]], [result], name="matmul"),
    ]
    plan = plan_of(model_of_nodes(nodes, values, [result]))
    assert not [step for step in plan.steps if "ref" in step.implementation]
    assert largest_error(run_plan(plan, [a, b])[0], a @ b) <= F32_BOUND


RELU = {"post_ops": ["relu"]}


@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_bias_and_activation_are_one_step(float_dtype) -> None:
    a, b, bias = arrays((2, 6, 32), (32, 48), (48,))
    inputs = [a, b, bias]
    found, steps = run_fused("MatMul", inputs, (2, 6, 48), RELU, (1, 2), float_dtype=float_dtype)
    bound = F32_BOUND if float_dtype is DType.FLOAT32 else BF16_BOUND
    assert largest_error(found, np.maximum(a @ b + bias, 0)) <= bound
    matmuls = [step for step in steps if step.startswith(("brg", "gemm:jit"))]
    assert len(matmuls) == 1
    assert not [step for step in steps if "ref" in step]


@pytest.mark.parametrize("shape", [(2, 6, 48), (48,), (1, 1, 1), (), (6, 1), (2, 1, 1), (6, 48)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_any_operand_that_broadcasts_is_fused(shape, is_constant) -> None:
    a, b, other = arrays((2, 6, 32), (32, 48), shape)
    attributes = {"post_ops": ["mul(3)", "tanh"]}
    constants = (1, 3) if is_constant else (1,)
    found, steps = run_fused("MatMul", [a, b, None, other], (2, 6, 48), attributes, constants)
    assert largest_error(found, np.tanh((a @ b) * other)) <= F32_BOUND
    assert not [step for step in steps if "ref" in step]


@pytest.mark.parametrize("left", [(4,), (2, 3, 4)])
@pytest.mark.parametrize("right", [(4,), (2, 4, 5)])
def test_vectors_take_post_ops_of_the_shape_that_is_left(left, right) -> None:
    a, b = arrays(left, right)
    wanted = np.matmul(a, b)
    (other,) = arrays(wanted.shape, seed=1)
    attributes = {"post_ops": ["add(3)", "relu"]}
    found, _ = run_fused("MatMul", [a, b, None, other], wanted.shape, attributes)
    assert largest_error(found, np.maximum(wanted + other, 0)) <= F32_BOUND


def test_a_gemm_scales_before_its_post_ops() -> None:
    a, b, c, other = arrays((3, 4), (5, 4), (3, 1), (3, 5))
    attributes = {"alpha": 0.5, "beta": 3.0, "transB": 1, "post_ops": ["add(3)", "relu"]}
    found, _ = run_fused("Gemm", [a, b, c, other], (3, 5), attributes, (1,))
    wanted = np.maximum(0.5 * (a @ b.T) + 3.0 * c + other, 0)
    assert largest_error(found, wanted) <= F32_BOUND


def residual_model(x: np.ndarray, weights: np.ndarray, *, is_kept: bool, is_source: bool):
    """Add relu(x) to a matmul: of x, or of relu(x) itself; or keep relu(x) as an output, too."""
    source = value_of("x", x)
    kind = TensorType(DType.FLOAT32, x.shape)
    relu, result = Value("r", kind), Value("y", kind)
    factors = value_of("w", weights, is_constant=True)
    nodes = [
        Node("Relu", [source], [relu], name="relu"),
        Node(
            "MatMul",
            [relu if is_source else source, factors, None, relu],
            [result],
            {"post_ops": ["sum(3)"]},
            name="matmul",
            domain="aioinfer.cpu",
        ),
    ]
    outputs = [result, relu] if is_kept else [result]
    last = Value("z", kind)
    nodes.append(Node("Relu", [result], [last], name="last"))
    return model_of_nodes(nodes, [source], [*outputs, last])


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("is_source", [False, True])
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_a_residual_is_added_and_what_is_still_needed_stays(
    is_kept, is_source, float_dtype
) -> None:
    x, weights = arrays((2, 5, 32), (32, 32))
    model = residual_model(x, weights, is_kept=is_kept, is_source=is_source)
    found = run_plan(plan_of(model, float_dtype=float_dtype), [x])
    relu = np.maximum(x, 0)
    wanted = (relu if is_source else x) @ weights + relu
    bound = F32_BOUND if float_dtype is DType.FLOAT32 else BF16_BOUND
    assert largest_error(found[0], wanted) <= bound
    if is_kept:
        assert largest_error(found[1], relu) <= bound
    assert largest_error(found[-1], np.maximum(wanted, 0)) <= bound


def test_a_residual_that_dies_is_added_in_place() -> None:
    x, weights = arrays((2, 5, 32), (32, 32))
    source = value_of("x", x)
    kind = TensorType(DType.FLOAT32, x.shape)
    relu, result, last = (Value(name, kind) for name in "ryz")
    factors = value_of("w", weights, is_constant=True)
    fused = Node(
        "MatMul",
        [source, factors, None, relu],
        [result],
        {"post_ops": ["sum(3)"]},
        name="matmul",
        domain="aioinfer.cpu",
    )
    nodes = [
        Node("Relu", [source], [relu], name="relu"),
        fused,
        Node("Relu", [result], [last], name="last"),
    ]
    plan = plan_of(model_of_nodes(nodes, [source], [last]))
    (matmul,) = (step for step in plan.steps if step.origin.op.endswith("MatMul"))
    (made,) = matmul.writes
    (before,) = (step for step in plan.steps[:1])
    assert made.buffer in {operand.buffer for operand in before.operands}
    wanted = np.maximum(x @ weights + np.maximum(x, 0), 0)
    assert largest_error(run_plan(plan, [x])[0], wanted) <= F32_BOUND


def test_plans_of_all_lengths_share_packed_weights(core) -> None:
    (weights,) = arrays((96, 128))
    (x,) = arrays((1, 7, 96))
    model = model_of([MATMUL], {"a": x}, constants={"b": weights}, dynamic=True)
    compiler, held = compiler_of(core, model), set()
    for length in (1, 2, 33, 128):
        (a,) = arrays((1, length, 96), seed=length)
        plan = BoundPlan(compiler.compile({"a": a.shape}, {}))
        (found,) = plan.run({"a": a})
        assert largest_error(found, a @ weights) <= F32_BOUND
        held.update(map(id, constants_of(plan.plan, weights.nbytes)))
    assert len(held) == 1
    assert compiler.weights.packed_bytes == (weights.nbytes if has_wide_vectors() else 0)
