import math

import numpy as np
import pytest

from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.runtime.graph import DType, Model, TensorType
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.attention.attention_fusion import AttentionFusion
from unit.runtime.passes.transformer_models import assert_same, fused, lines, ops, typed

# Batch 2, 3 queries, 5 keys, 2 heads of 4 columns.
HEAD = """g (float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[2,1,1,5] m, bool[2,1,3,5] c)
=> (float[2,3,8] y) <
    int64[4] split_q = {2, 3, 2, 4}, int64[4] split_k = {2, 5, 2, 4}, int64[3] merge = {2, 3, 8},
    int64[3] flat_q = {4, 3, 4}, int64[3] flat_k = {4, 5, 4}, int64[4] four = {2, 2, 3, 5},
    int64[3] three = {4, 3, 5}, int64[2] rows = {6, 8}, int64[4] split_flat = {2, 2, 3, 4},
    float two = {2}, float half = {0.5}, float[1] root = {0.8}, float low = {-1e4},
    float lowest = {-3.4e38}, float[2,1,3] three_masks = {0, 0, 0, 0, 0, 0},
    bool[3,5] causal = {1,0,0,0,0, 1,1,0,0,0, 1,1,1,0,0}, float[1,2,3,1] bias = {1,2,3,4,5,6},
    bool[3,5] no_key = {0,0,0,0,0, 1,1,0,0,0, 1,1,1,0,0}, int64[4] zeros = {0, 0, 2, 4}
> {"""
QUERY = "q4 = Reshape(q, split_q) qh = Transpose<perm=[0,2,1,3]>(q4)"
KEY = "k4 = Reshape(k, split_k) kt = Transpose<perm=[0,2,3,1]>(k4)"
VALUE = "v4 = Reshape(v, split_k) vh = Transpose<perm=[0,2,1,3]>(v4)"
SCORES = "s = MatMul(qh, kt) d = Div(s, two)"
END = "x = MatMul(p, vh) t = Transpose<perm=[0,2,1,3]>(x) y = Reshape(t, merge)"
SOFTMAX = "p = Softmax<axis=-1>(d)"
WHOLE = f"{QUERY} {KEY} {VALUE} {SCORES} {SOFTMAX} {END}"


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def fuse(model: Model) -> Model:
    return fused(model, AttentionFusion(CPU_DOMAIN))


def test_the_usual_form_becomes_one_node() -> None:
    model = model_of(WHOLE.replace(SOFTMAX, "a = Add(d, m) p = Softmax(a)"))
    found = fuse(model)
    assert lines(model) == [
        "q4 = Reshape(q, split_q)",
        "qh = Transpose(q4) {perm=[0, 2, 1, 3]}",
        "k4 = Reshape(k, split_k)",
        "kt = Transpose(k4) {perm=[0, 2, 3, 1]}",
        "v4 = Reshape(v, split_k)",
        "vh = Transpose(v4) {perm=[0, 2, 1, 3]}",
        "s = MatMul(qh, kt)",
        "d = Div(s, two)",
        "a = Add(d, m)",
        "p = Softmax(a)",
        "x = MatMul(p, vh)",
        "t = Transpose(x) {perm=[0, 2, 1, 3]}",
        "y = Reshape(t, merge)",
    ]
    assert lines(found) == ["y = cpu::Attention(q, k, v, m) {num_heads=2, scale=0.5}"]
    (node,) = found.graph.nodes
    assert len(node.fused_from) == 13
    assert_same(model, found)


@pytest.mark.parametrize(
    ("old", "new", "scale"),
    [
        ("d = Div(s, two)", "d = Mul(s, half)", 0.5),
        ("d = Div(s, two)", "d = Mul(root, s)", 0.8),
        ("d = Div(s, two)", "d = Identity(s)", 1.0),
        ("d = Div(s, two)", "e = Div(s, two) d = Mul(e, half)", 0.25),
        (SCORES, "qs = Div(qh, two) d = MatMul(qs, kt)", 0.5),
        (SCORES, "qs = Mul(qh, root) ks = Mul(kt, root) d = MatMul(qs, ks)", 0.64),
        ("q4 = Reshape(q, split_q)", "qs = Mul(q, half) q4 = Reshape(qs, split_q)", 0.25),
        ("q4 = Reshape(q, split_q)", "qs = Reshape(q, split_q) q4 = Mul(qs, half)", 0.25),
        (KEY, f"{KEY.replace('[0,2,3,1]', '[0,2,1,3]').replace('kt', 'kh')} "
              "kt = Transpose<perm=[0,1,3,2]>(kh)", 0.5),
        (SOFTMAX, "p = Softmax<axis=3>(d)", 0.5),
        ("split_q)", "zeros)", 0.5),
        (END, END.replace("y = Reshape(t, merge)", "f = Reshape(t, rows) y = Reshape(f, merge)"),
         0.5),
    ],
)  # fmt: skip
def test_other_ways_to_scale_split_and_merge(old: str, new: str, scale: float) -> None:
    assert old in WHOLE
    model = model_of(WHOLE.replace(old, new))
    found = fuse(model)
    assert lines(found) == [f"y = cpu::Attention(q, k, v) {{num_heads=2, scale={scale:.6g}}}"]
    assert_same(model, found)


FLAT = f"""
    q4 = Reshape(q, split_q) q5 = Transpose<perm=[0,2,1,3]>(q4) qh = Reshape(q5, flat_q)
    k4 = Reshape(k, split_k) k5 = Transpose<perm=[0,2,1,3]>(k4) kh = Reshape(k5, flat_k)
    kt = Transpose<perm=[0,2,1]>(kh)
    v4 = Reshape(v, split_k) v5 = Transpose<perm=[0,2,1,3]>(v4) vh = Reshape(v5, flat_k)
    {SCORES} {SOFTMAX}
    x = MatMul(p, vh) x4 = Reshape(x, split_flat) t = Transpose<perm=[0,2,1,3]>(x4)
    y = Reshape(t, merge)"""


def test_batch_and_heads_may_be_one_axis() -> None:
    model = model_of(FLAT)
    found = fuse(model)
    assert lines(found) == ["y = cpu::Attention(q, k, v) {num_heads=2, scale=0.5}"]
    assert_same(model, found)


def test_a_mask_may_be_added_between_two_reshapes() -> None:
    masked = "d4 = Reshape(d, four) a = Add(d4, m) a3 = Reshape(a, three) p = Softmax(a3)"
    model = model_of(FLAT.replace(SOFTMAX, masked))
    found = fuse(model)
    assert lines(found) == ["y = cpu::Attention(q, k, v, m) {num_heads=2, scale=0.5}"]
    assert_same(model, found)


def test_a_mask_of_batch_times_heads_is_divided() -> None:
    whole = FLAT.replace(SOFTMAX, "w = Expand(m, four) w3 = Reshape(w, three) a = Add(d, w3)")
    model = model_of(whole.replace("x = MatMul(p", "p = Softmax(a) x = MatMul(p"))
    found = fuse(model)
    assert ops(found) == {"Expand": 1, "Reshape": 2, "cpu::Attention": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("a = Add(m, d) b = Add(bias, a) p = Softmax(b)", {"Add": 1}),
        ("a = Where(c, d, lowest) p = Softmax(a)", {"Where": 1}),
        ("n = Not(c) a = Where(n, lowest, d) p = Softmax(a)", {"Not": 1, "Where": 1}),
        ("a = Where(causal, d, low) p = Softmax(a)", {"Where": 1}),
        ("a = Add(d, m) b = Where(c, a, lowest) p = Softmax(b)", {"Where": 1}),
        ("b = Where(c, d, lowest) a = Add(b, m) p = Softmax(a)", {"Where": 1, "Add": 1}),
    ],
)
def test_masks_become_one_to_add(nodes: str, left: dict[str, int]) -> None:
    model = model_of(WHOLE.replace(SOFTMAX, nodes))
    found = fuse(model)
    assert ops(found) == {"cpu::Attention": 1, **left}
    assert_same(model, found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SOFTMAX, "p = Softmax<axis=2>(d)"),
        (SOFTMAX, "p = Sigmoid(d)"),
        (SOFTMAX, "a = Add(d, m) b = Mul(a, half) p = Softmax(b)"),
        (SOFTMAX, "a = Where(c, d, low) p = Softmax(a)"),
        (SOFTMAX, "a = Where(no_key, d, low) p = Softmax(a)"),
        (SOFTMAX, "a = Where(causal, d, half) p = Softmax(a)"),
        (SOFTMAX, "a = Clip(d, low, two) p = Softmax(a)"),
        (SCORES, "s = MatMul(qh, kt) d = Mul(s, bias)"),
        (VALUE, "v4 = Relu(v) v5 = Reshape(v4, split_k) v6 = Transpose<perm=[2,0,1,3]>(v5) "
                "v7 = Gather(v6, swap) vh = Transpose<perm=[1,0,2,3]>(v7)"),
        (END, "x = MatMul(p, vh) t = Transpose<perm=[1,2,0,3]>(x) y = Reshape(t, merge)"),
        (END, "x = MatMul(p, vh) y = Reshape(x, merge)"),
    ],
)  # fmt: skip
def test_what_is_something_else_stays(old: str, new: str) -> None:
    assert old in WHOLE
    text = f"{HEAD} {WHOLE.replace(old, new)} }}"
    model = typed(text.replace("float two", "int64[2] swap = {1, 0}, float two"))
    assert ops(fuse(model)) == ops(model)


GUARD = """zero = Where(no_key, nought, infinite) a = Add(d, zero) p1 = Softmax(a)
    i = IsNaN(p1) p = Where(i, nought1, p1)"""


def guarded(guard: str) -> Model:
    infinite = "float infinite = {-3.4e38}, float nought = {0}, float[1] nought1 = {0}, float two"
    model = typed(f"{HEAD} {WHOLE.replace(SOFTMAX, guard)} }}".replace("float two", infinite))
    for value in model.graph.initializers.values():
        if value.constant is not None and value.constant.dtype == np.float32:
            value.constant = np.where(value.constant < -1e38, -np.inf, value.constant)
    return model


def test_a_query_without_any_key_may_be_given_zeros() -> None:
    model = guarded(GUARD)
    found = fuse(model)
    assert ops(found) == {"cpu::Attention": 1}
    assert lines(found)[0].endswith("{num_heads=2, scale=0.5, zero_empty_rows=1}")
    assert_same(model, found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nought1", "two"),
        ("IsNaN(p1)", "IsNaN(a)"),
        ("(i, nought1, p1)", "(i, p1, nought1)"),
        ("IsNaN(p1)", "IsNaN(p1) e = Exp(p1)"),
    ],
)
def test_another_choice_of_probabilities_stays(old: str, new: str) -> None:
    assert old in GUARD
    model = guarded(GUARD.replace(old, new))
    assert "cpu::Attention" not in ops(fuse(model))


@pytest.mark.parametrize("name", ["p", "s", "x"])
def test_scores_and_probabilities_that_others_need_stay(name: str) -> None:
    model = typed(f"{HEAD} {WHOLE} }}".replace("y)", f"y, float {name})", 1))
    assert ops(fuse(model)) == ops(model)


def test_heads_that_others_need_stay_beside_it() -> None:
    model = typed(f"{HEAD} {WHOLE} }}".replace("y)", "y, float[2,2,5,4] vh)", 1))
    found = fuse(model)
    assert lines(found) == [
        "v4 = Reshape(v, split_k)",
        "vh = Transpose(v4) {perm=[0, 2, 1, 3]}",
        "y = cpu::Attention(q, k, v) {num_heads=2, scale=0.5}",
    ]
    assert_same(model, found)


def test_unknown_lengths_are_refused() -> None:
    text = f"{HEAD} {WHOLE} }}".replace("float[2,3,8] q,", "float[B,3,8] q,")
    model = typed(text.replace("(q, split_q)", "(q, zeros)"))
    assert ops(fuse(model)) == ops(model)


def test_nodes_for_different_devices_stay_apart() -> None:
    model = model_of(WHOLE)
    model.node("Softmax_0").affinity = "CPU.1"
    assert ops(fuse(model)) == ops(model)


PACKED = """g (float[2,3,24] x) => (float[2,3,8] y) <
    int64[5] split = {2, 3, 3, 2, 4}, int64[3] merge = {2, 3, 8}, float two = {2},
    int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] axis = {0}, int64[3] ones = {1, 1, 1},
    int64[1] s0 = {0}, int64[1] s1 = {1}, int64[1] s2 = {2}, int64[1] s3 = {3},
    int64[3] widths = {8, 8, 8}, int64[4] heads = {2, 3, 2, 4}
> { %s
    kt = Transpose<perm=[0,1,3,2]>(kh) s = MatMul(qh, kt) d = Div(s, two) p = Softmax(d)
    c = MatMul(p, vh) t = Transpose<perm=[0,2,1,3]>(c) y = Reshape(t, merge)
}"""
FIVE = "x5 = Reshape(x, split) xt = Transpose<perm=[2,0,3,1,4]>(x5)"
PACKED_FORMS = [
    f"{FIVE} qh = Gather(xt, i0) kh = Gather(xt, i1) vh = Gather(xt, i2)",
    f"""{FIVE} q1, k1, v1 = Split<axis=0>(xt, ones) qh = Squeeze(q1, axis)
        kh = Squeeze(k1, axis) vh = Squeeze(v1, axis)""",
    f"""{FIVE} q1 = Slice(xt, s0, s1, axis) k1 = Slice(xt, s1, s2, axis)
        v1 = Slice(xt, s2, s3, axis) qh = Squeeze(q1, axis) kh = Squeeze(k1, axis)
        vh = Squeeze(v1, axis)""",
    """x5 = Reshape(x, split) q4 = Gather<axis=2>(x5, i0) k4 = Gather<axis=2>(x5, i1)
        v4 = Gather<axis=2>(x5, i2) qh = Transpose<perm=[0,2,1,3]>(q4)
        kh = Transpose<perm=[0,2,1,3]>(k4) vh = Transpose<perm=[0,2,1,3]>(v4)""",
]


@pytest.mark.parametrize("nodes", PACKED_FORMS)
def test_a_packed_value_is_split_into_columns(nodes: str) -> None:
    model = typed(PACKED % nodes)
    found = fuse(model)
    assert lines(found) == [
        "x_part, x_part_1, x_part_2 = Split(x, MatMul_0_sizes) {axis=-1}",
        "y = cpu::Attention(x_part, x_part_1, x_part_2) {num_heads=2, scale=0.5}",
    ]
    assert_same(model, found)


def test_a_split_that_is_there_is_used() -> None:
    nodes = "q, k, v = Split<axis=2>(x, widths)"
    for name in "qkv":
        nodes += f" {name}4 = Reshape({name}, heads) {name}h = Transpose<perm=[0,2,1,3]>({name}4)"
    model = typed(PACKED % nodes)
    found = fuse(model)
    assert lines(found) == [
        "q, k, v = Split(x, widths) {axis=2}",
        "y = cpu::Attention(q, k, v) {num_heads=2, scale=0.5}",
    ]
    assert_same(model, found)


def test_one_packed_part_may_serve_twice_and_one_not_at_all() -> None:
    model = typed(PACKED % f"{FIVE} qh = Gather(xt, i2) kh = Gather(xt, i1) vh = Gather(xt, i2)")
    found = fuse(model)
    assert lines(found)[1] == (
        "y = cpu::Attention(x_part_2, x_part_1, x_part_2) {num_heads=2, scale=0.5}"
    )
    assert_same(model, found)


def test_heads_that_do_not_lie_side_by_side_stay() -> None:
    nodes = """x5 = Reshape(x, split) xt = Transpose<perm=[3,0,2,1,4]>(x5)
        qh = Gather(xt, i0) kh = Gather(xt, i1) vh = Gather(xt, i0)"""
    text = (PACKED % nodes).replace("float[2,3,8] y", "float[2,3,12] y")
    model = typed(text.replace("{2, 3, 8}", "{2, 3, 12}"))
    before = ops(model)
    found = fuse(model)
    assert ops(found) == before


def test_keys_may_come_out_of_another_order_first() -> None:
    keys = "k6 = Transpose<perm=[0,2,1]>(k) k4 = Reshape(k6, split_k)"
    model = model_of(WHOLE.replace("k4 = Reshape(k, split_k)", keys))
    found = fuse(model)
    assert ops(found) == {"Transpose": 1, "Reshape": 1, "cpu::Attention": 1}
    assert_same(model, found)


def test_rows_of_a_flat_matrix_are_shaped() -> None:
    model = typed(
        """g (float[6,8] q, float[6,8] k, float[6,8] v) => (float[6,8] y) <
            int64[4] split = {2, 3, 2, 4}, int64[2] merge = {6, 8}
        > {
            q4 = Reshape(q, split) qh = Transpose<perm=[0,2,1,3]>(q4)
            k4 = Reshape(k, split) kt = Transpose<perm=[0,2,3,1]>(k4)
            v4 = Reshape(v, split) vh = Transpose<perm=[0,2,1,3]>(v4)
            s = MatMul(qh, kt) p = Softmax(s) c = MatMul(p, vh)
            t = Transpose<perm=[0,2,1,3]>(c) y = Reshape(t, merge)
        }"""
    )
    found = fuse(model)
    assert ops(found) == {"Reshape": 4, "cpu::Attention": 1}
    assert_same(model, found)


def test_one_head_needs_no_split() -> None:
    model = typed(
        """g (float[2,3,4] q, float[2,5,4] k, float[2,5,4] v, float[2,3,5] m)
        => (float[2,3,4] y) {
            kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt) a = Add(s, m) p = Softmax(a)
            y = MatMul(p, v)
        }"""
    )
    found = fuse(model)
    assert lines(found)[-1] == "y = cpu::Attention(q, k, v, m_heads) {num_heads=1, scale=1}"
    assert_same(model, found)


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (1, 3), (2, 1)])
def test_axes_of_length_one(batch: int, rows: int) -> None:
    model = typed(
        f"""g (float[{batch},{rows},8] q, float[{batch},5,8] k, float[{batch},5,8] v)
        => (float[{batch},{rows},8] y) <
            int64[4] split_q = {{{batch}, {rows}, 2, 4}}, int64[4] split_k = {{{batch}, 5, 2, 4}},
            int64[3] merge = {{{batch}, {rows}, 8}}
        > {{
            {QUERY} {KEY} {VALUE} d = MatMul(qh, kt) {SOFTMAX} {END}
        }}"""
    )
    found = fuse(model)
    assert lines(found) == ["y = cpu::Attention(q, k, v) {num_heads=2, scale=1}"]
    assert_same(model, found)


def test_attentions_with_the_same_mask_share_it() -> None:
    second = WHOLE
    for name in ("q4", "qh", "k4", "kt", "v4", "vh", "s", "d", "a", "p", "x", "t", "y"):
        second = second.replace(f"{name} =", f"{name}2 =").replace(f"({name},", f"({name}2,")
        second = second.replace(f"({name})", f"({name}2)").replace(f", {name})", f", {name}2)")
    masked = WHOLE.replace(SOFTMAX, "a = Where(c, d, lowest) p = Softmax(a)")
    masked2 = second.replace(
        "p2 = Softmax<axis=-1>(d2)", "a2 = Where(c, d2, lowest) p2 = Softmax(a2)"
    )
    text = f"{HEAD} {masked} {masked2} }}".replace("y)", "y, float[2,3,8] y2)", 1)
    model = typed(text)
    found = fuse(model)
    assert ops(found) == {"Where": 1, "cpu::Attention": 2}
    assert_same(model, found)


STANDARD = """g (float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[2,1,1,5] m, bool[3,5] c)
=> (float[2,3,8] y) { y = Attention<q_num_heads=2, kv_num_heads=2%s>(q, k, v%s) }"""


@pytest.mark.parametrize(
    ("attributes", "inputs", "expected"),
    [
        ("", "", f"(q, k, v) {{num_heads=2, scale={0.5:.6g}}}"),
        (", scale=0.25", ", m", "(q, k, v, m) {num_heads=2, scale=0.25}"),
        (", is_causal=1", "", "(q, k, v, causal_mask) {num_heads=2, scale=0.5}"),
        ("", ", c", "(q, k, v, c_added) {num_heads=2, scale=0.5}"),
    ],
)
def test_the_standard_operator_becomes_the_same_node(
    attributes: str, inputs: str, expected: str
) -> None:
    model = typed(STANDARD % (attributes, inputs), opset=24)
    found = fuse(model)
    assert lines(found)[-1] == f"y = cpu::Attention{expected}"
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=(2, 5, 8)).astype(np.float32) for name in "qkv"}
    arrays["q"] = arrays["q"][:, :3].copy()
    arrays["m"] = generator.normal(size=(2, 1, 1, 5)).astype(np.float32)
    arrays["c"] = np.tri(3, 5, 1, dtype=bool)
    assert_same(model, found, arrays)


@pytest.mark.parametrize(
    ("attributes", "inputs"),
    [(", softcap=2.0", ""), (", is_causal=1", ", m"), (", softmax_precision=11", "")],
)
def test_a_standard_operator_that_does_more_stays(attributes: str, inputs: str) -> None:
    model = typed(STANDARD % (attributes, inputs), opset=24)
    assert ops(fuse(model)) == {"Attention": 1}


def test_a_standard_operator_with_shared_key_heads_stays() -> None:
    text = (STANDARD % ("", "")).replace("kv_num_heads=2", "kv_num_heads=1")
    model = typed(text.replace("float[2,5,8]", "float[2,5,4]"), opset=24)
    assert ops(fuse(model)) == {"Attention": 1}


def test_the_scale_is_a_plain_number() -> None:
    found = fuse(model_of(WHOLE))
    (node,) = found.graph.nodes
    assert type(node.attributes["scale"]) is float
    assert math.isclose(node.attributes["scale"], 0.5)
    run_passes(found, [AttentionFusion(CPU_DOMAIN)])
    assert ops(found) == {"cpu::Attention": 1}


def test_other_floats_have_to_be_allowed() -> None:
    masked = "z = Where(c, d, lowest) p = Softmax(z)"
    text = f"{HEAD} {WHOLE.replace(SOFTMAX, masked)} }}".replace("-3.4e38", "-inf")
    model = typed(text.replace("float", "double"))
    assert ops(fuse(model)) == ops(model)
    found = fused(model, AttentionFusion(CPU_DOMAIN, [DType.FLOAT64]))
    assert ops(found) == {"Where": 1, "cpu::Attention": 1}
    (node,) = found.graph.nodes_of("Attention", CPU_DOMAIN)
    kinds = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    assert {kind.dtype for kind in kinds if isinstance(kind, TensorType)} == {DType.FLOAT64}
