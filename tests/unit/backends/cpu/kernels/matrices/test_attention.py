"""The CPU's own Attention equals its formula, reads packed projections where they lie."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.errors import UnsupportedOpError
from aioinfer.runtime.graph import DType, Node, TensorType, Value
from exhaustive import drawn
from unit.backends.cpu.comparing import (
    BF16_BOUND,
    F32_BOUND,
    assert_same_as_reference,
    model_of,
    run,
)
from unit.backends.cpu.single_nodes import (
    largest_error,
    model_of_nodes,
    plan_of,
    run_fused,
    run_plan,
    value_of,
)

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
BOUNDS = {DType.FLOAT32: F32_BOUND, DType.BFLOAT16: BF16_BOUND}


def arrays(*shapes, seed=0):
    chance = np.random.default_rng(seed)
    return [chance.standard_normal(shape).astype(np.float32) for shape in shapes]


def attention(q, k, v, mask, heads, scale):
    def split(x):
        batch, rows, width = x.shape
        return x.reshape(batch, rows, heads, width // heads).transpose(0, 2, 1, 3).astype(float)

    scores = split(q) @ split(k).transpose(0, 1, 3, 2) * scale
    if mask is not None:
        scores = scores + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (powers / powers.sum(-1, keepdims=True)) @ split(v)
    return mixed.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)


MASKS = [None, (2, 1, 1, 7), (1, 1, 5, 7), (2, 3, 5, 7), (5, 7), (7,), (1, 1, 5, 1), (), (1,)]


@pytest.mark.parametrize("mask_shape", MASKS)
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("float_dtype", BOUNDS)
def test_masks_of_every_shape_are_added(mask_shape, is_constant, float_dtype) -> None:
    q, k, v = arrays((2, 5, 12), (2, 7, 12), (2, 7, 12))
    inputs = [q, k, v]
    mask = None
    if mask_shape is not None:
        (mask,) = arrays(mask_shape, seed=1)
        inputs.append(mask)
    attributes = {"num_heads": 3, "scale": 0.4}
    constants = (3,) if is_constant else ()
    found, steps = run_fused(
        "Attention", inputs, q.shape, attributes, constants, float_dtype=float_dtype
    )
    assert largest_error(found, attention(q, k, v, mask, 3, 0.4)) <= BOUNDS[float_dtype]
    assert not [step for step in steps if "ref" in step]


def test_masked_keys_count_for_nothing() -> None:
    q, k, v = arrays((1, 4, 8), (1, 6, 8), (1, 6, 8))
    mask = np.zeros((1, 1, 4, 6), np.float32)
    mask[..., 3:] = -np.inf
    found, _ = run_fused("Attention", [q, k, v, mask], q.shape, {"num_heads": 2, "scale": 0.5})
    wanted = attention(q, k[:, :3], v[:, :3], None, 2, 0.5)
    assert largest_error(found, wanted) <= F32_BOUND


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("float_dtype", BOUNDS)
def test_a_query_without_keys_is_zero_where_that_is_asked_for(is_guarded, float_dtype) -> None:
    q, k, v = arrays((1, 4, 8), (1, 6, 8), (1, 6, 8))
    mask = np.zeros((1, 1, 4, 6), np.float32)
    mask[..., 2, :] = -np.inf
    attributes = {"num_heads": 2, "scale": 0.5} | ({"zero_empty_rows": 1} if is_guarded else {})
    found, _ = run_fused("Attention", [q, k, v, mask], q.shape, attributes, float_dtype=float_dtype)
    wanted = attention(q, k, v, mask, 2, 0.5)
    assert np.isnan(wanted[0, 2]).all()
    if not is_guarded:
        assert np.isnan(found[0, 2]).all()
    rows = [0, 1, 2, 3] if is_guarded else [0, 1, 3]
    assert largest_error(found[:, rows], np.nan_to_num(wanted)[:, rows]) <= BOUNDS[float_dtype]


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("has_nan", [False, True])
def test_an_exported_guard_against_queries_without_keys(core, is_guarded, has_nan) -> None:
    batch, rows, heads, size = 2, 4, 2, 8
    q, k, v = arrays(*[(batch, rows, heads * size)] * 3)
    mask = np.zeros((batch, 1, rows, rows), np.float32)
    mask[0, 0, 1] = -np.inf
    if has_nan:
        q[1, 2, 3] = np.nan
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name, "split"], [f"{name}_split"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_split"], [f"{name}_t"], perm=order))
    nodes.append(helper.make_node("MatMul", ["q_t", "k_t"], ["scores"]))
    nodes.append(helper.make_node("Add", ["scores", "m"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked"], ["p"], axis=-1))
    if is_guarded:
        nodes.append(helper.make_node("IsNaN", ["p"], ["is_nan"]))
        nodes.append(helper.make_node("Where", ["is_nan", "zero", "p"], ["kept"]))
    nodes.append(helper.make_node("MatMul", ["kept" if is_guarded else "p", "v_t"], ["mixed"]))
    nodes.append(helper.make_node("Transpose", ["mixed"], ["merged"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["merged", "join"], ["y"]))
    constants = {
        "split": np.array([batch, rows, heads, size]),
        "join": np.array([batch, rows, heads * size]),
        "zero": np.float32(0),
    }
    inputs = {"q": q, "k": k, "v": v, "m": mask}
    found = assert_same_as_reference(core, model_of(nodes, inputs, constants=constants), inputs)
    assert np.isnan(found["y"][0, 1]).all() != is_guarded
    assert np.isnan(found["y"]).any() != is_guarded


def test_no_key_at_all_is_zero_and_no_row_is_nothing() -> None:
    q, k = arrays((2, 3, 8), (2, 0, 8))
    found, _ = run_fused("Attention", [q, k, k], q.shape, {"num_heads": 2, "scale": 1.0})
    np.testing.assert_array_equal(found, np.zeros_like(q))
    found, _ = run_fused("Attention", [q[:, :0], q, q], (2, 0, 8), {"num_heads": 2, "scale": 1.0})
    assert found.shape == (2, 0, 8)


@pytest.mark.parametrize("float_dtype", BOUNDS)
@pytest.mark.parametrize("thread_count", [1, 2])
def test_a_packed_projection_is_not_split(float_dtype, thread_count) -> None:
    batch, rows, heads, size = 2, 33, 4, 16
    width = heads * size
    (packed,) = arrays((batch, rows, 3 * width))
    source = value_of("packed", packed)
    sizes = Value("sizes", TensorType(DType.INT64, (3,)), np.array([width] * 3))
    kind = TensorType(DType.FLOAT32, (batch, rows, width))
    relu = Value("r", source.type)
    parts, result = [Value(name, kind) for name in "qkv"], Value("y", kind)
    attributes = {"num_heads": heads, "scale": 1 / math.sqrt(size)}
    nodes = [
        Node("Relu", [source], [relu], name="relu"),
        Node("Split", [relu, sizes], parts, {"axis": -1}, name="split"),
        Node("Attention", parts, [result], attributes, name="attention", domain="aioinfer.cpu"),
    ]
    model = model_of_nodes(nodes, [source], [result])
    plan = plan_of(model, float_dtype=float_dtype, thread_count=thread_count)
    attending = [step for step in plan.steps if step.origin.op.endswith("Attention")]
    kinds = [step.implementation.partition(":")[0] for step in attending]
    has_copies = float_dtype is DType.FLOAT32 and "gemm" not in kinds  # what AVX-512 is given
    assert [kind for kind in kinds if kind != "native"] in (["gemm"] * 2, ["brg"] * 2)
    assert len(kinds) == 3 + 3 * has_copies
    assert not [step for step in plan.steps if step.origin.op == "Split"]
    (found,) = run_plan(plan, [packed])
    q, k, v = np.split(np.maximum(packed, 0), 3, -1)
    wanted = attention(q, k, v, None, heads, attributes["scale"])
    assert largest_error(found, wanted) <= BOUNDS[float_dtype]


@pytest.mark.parametrize("float_dtype", BOUNDS)
@EXAMPLES
@given(
    lengths=st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 40)] * 2, st.integers(1, 9)),
    has_mask=st.booleans(),
)
def test_random_lengths(lengths, has_mask, float_dtype) -> None:
    batch, heads, rows, keys, size = lengths
    width = heads * size
    inputs = arrays((batch, rows, width), (batch, keys, width), (batch, keys, width))
    mask = arrays((batch, 1, 1, keys), seed=1)[0] if has_mask else None
    given_inputs = [*inputs, mask] if has_mask else inputs
    attributes = {"num_heads": heads, "scale": 0.3}
    found, steps = run_fused(
        "Attention", given_inputs, (batch, rows, width), attributes, float_dtype=float_dtype
    )
    assert not [step for step in steps if "ref" in step]
    assert largest_error(found, attention(*inputs, mask, heads, 0.3)) <= BOUNDS[float_dtype]


STANDARD = [
    ({}, None),
    ({"is_causal": 1}, None),
    ({"scale": 0.1}, "float"),
    ({}, "bool"),
    ({"is_causal": 1}, "float"),
]


def standard(shapes, attributes, mask, rows=5, keys=7):
    q, k, v = arrays(*shapes)
    inputs = {"q": q, "k": k, "v": v}
    if mask is not None:
        chance = np.random.default_rng(1)
        added = chance.standard_normal((rows, keys)).astype(np.float32)
        inputs["m"] = added if mask == "float" else (added > -1) | np.eye(rows, keys, dtype=bool)
    return helper.make_node("Attention", [*inputs], ["y"], **attributes), inputs


@pytest.mark.parametrize(("attributes", "mask"), STANDARD)
@pytest.mark.parametrize("disabled", [[], ["attention fusion"]])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_standard_node_of_three_axes(core, attributes, mask, disabled, dynamic) -> None:
    attributes = {**attributes, "q_num_heads": 3, "kv_num_heads": 3}
    node, inputs = standard([(2, 5, 12), (2, 7, 12), (2, 7, 12)], attributes, mask)
    model = model_of([node], inputs, opset=23, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, CPU_DISABLED_PASSES=disabled)


@pytest.mark.parametrize(("attributes", "mask"), STANDARD)
def test_the_standard_node_of_four_axes(core, attributes, mask) -> None:
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)]
    node, inputs = standard(shapes, attributes, mask)
    assert_same_as_reference(core, model_of([node], inputs, opset=23), inputs)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_heads_that_share_keys_and_values(core, kv_heads, precision) -> None:
    config = {"INFERENCE_PRECISION_HINT": precision}
    bound = F32_BOUND if precision == "f32" else BF16_BOUND
    width = 8 * kv_heads
    attributes = {"q_num_heads": 4, "kv_num_heads": kv_heads}
    node, inputs = standard([(2, 5, 32), (2, 7, width), (2, 7, width)], attributes, "float")
    model = model_of([node], inputs, opset=23)
    assert_same_as_reference(core, model, inputs, bound=bound, **config)
    node, inputs = standard([(2, 4, 5, 8), (2, kv_heads, 7, 8), (2, kv_heads, 7, 8)], {}, None)
    model = model_of([node], inputs, opset=23)
    assert_same_as_reference(core, model, inputs, bound=bound, **config)


def test_a_causal_node_with_a_boolean_mask(core) -> None:
    attributes = {"q_num_heads": 3, "kv_num_heads": 3, "is_causal": 1}
    node, inputs = standard([(2, 5, 12), (2, 7, 12), (2, 7, 12)], attributes, "bool")
    found = run(core, model_of([node], inputs, opset=23), "CPU", inputs)["y"]
    mask = np.where(np.tril(inputs["m"]), 0, -np.inf)
    wanted = attention(inputs["q"], inputs["k"], inputs["v"], mask, 3, 0.5)
    assert largest_error(found, wanted) <= F32_BOUND


def test_values_of_another_width(core) -> None:
    attributes = {"q_num_heads": 3, "kv_num_heads": 3}
    node, inputs = standard([(2, 5, 12), (2, 7, 12), (2, 7, 6)], attributes, "bool")
    assert_same_as_reference(core, model_of([node], inputs, opset=23), inputs)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"softcap": 1.0}, "softcap"),
        ({"softmax_precision": 11}, "softmax in float32"),
    ],
)
def test_what_the_standard_node_may_not_ask_for(core, attributes, reason) -> None:
    attributes = {**attributes, "q_num_heads": 4, "kv_num_heads": 4}
    node, inputs = standard([(2, 5, 32), (2, 7, 32), (2, 7, 32)], attributes, None)
    with pytest.raises(UnsupportedOpError, match=reason):
        core.load_network(model_of([node], inputs, opset=23), "CPU")


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("mask_shape", [(7,), (5, 7), (5, 4), (5, 1), (2, 1, 1, 1), (1,)])
@pytest.mark.parametrize("has_four_axes", [False, True])
def test_keys_that_a_mask_does_not_reach_are_excluded(
    core, kind, mask_shape, has_four_axes
) -> None:
    shapes, attributes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)], {}
    if not has_four_axes:
        shapes = [(2, 5, 12), (2, 7, 12), (2, 7, 12)]
        attributes = {"q_num_heads": 3, "kv_num_heads": 3}
    node, inputs = standard(shapes, attributes, None)
    (mask,) = arrays(mask_shape, seed=1)
    inputs["m"] = mask if kind == "float" else mask < 9
    node.input.append("m")
    assert_same_as_reference(core, model_of([node], inputs, opset=24), inputs)
