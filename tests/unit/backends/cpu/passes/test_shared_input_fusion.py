import numpy as np
import pytest

from aioinfer.backends.cpu.passes.shared_input_fusion import SharedInputFusion
from aioinfer.runtime.graph import Model
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from unit.runtime.passes.transformer_models import assert_same, fused, lines, ops, typed

HEAD = """g (float[2,3,2] x, float[2,3,2] z) => (float[2,3,2] q, float[2,3,2] k, float[2,3,3] v) <
    float[2,2] a = {1, 2, 3, 4}, float[2,2] b = {-1, 0, 2, 1}, float[2,3] c = {1, 0, 2, 3, 1, 1},
    float[2] a1 = {10, 20}, float[2] b1 = {30, 40}, float[3] c1 = {1, 2, 3}, float one = {1}
> {"""


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def fuse(model: Model, cache: ConstantCache | None = None) -> Model:
    return fused(model, SharedInputFusion(ConstantCache() if cache is None else cache))


def content(model: Model, name: str) -> object:
    array = model.graph.initializers[name].constant
    assert array is not None
    return array.tolist()


def test_matmuls_of_one_value_become_one() -> None:
    model = model_of(
        """xa = MatMul(x, a) q = Add(xa, a1) xb = MatMul(x, b) k = Add(b1, xb)
        xc = MatMul(x, c) v = Add(xc, c1)"""
    )
    found = fuse(model)
    joined = "MatMul_0_joined"
    assert lines(found) == [
        f"xa_joined = MatMul(x, {joined}_MatMul_constant)",
        f"xa_joined_1 = Add(xa_joined, {joined}_Add_constant)",
        f"q, k, v = Split(xa_joined_1, {joined}_Split_constant) {{axis=-1}}",
    ]
    assert content(found, f"{joined}_MatMul_constant") == [
        [1, 2, -1, 0, 1, 0, 2],
        [3, 4, 2, 1, 3, 1, 1],
    ]
    assert content(found, f"{joined}_Add_constant") == [10, 20, 30, 40, 1, 2, 3]
    assert content(found, f"{joined}_Split_constant") == [2, 2, 3]
    assert len(found.node(f"{joined}_Split").fused_from) == 6
    assert_same(model, found)


def test_what_has_no_bias_is_given_zeros() -> None:
    model = model_of("q = MatMul(x, a) k = MatMul(x, b) xc = MatMul(x, c) v = Add(xc, c1)")
    found = fuse(model)
    assert ops(found) == {"MatMul": 1, "Add": 1, "Split": 1}
    assert content(found, "MatMul_0_joined_Add_constant") == [0, 0, 0, 0, 1, 2, 3]
    assert_same(model, found)


def test_without_any_bias_there_is_no_addition() -> None:
    model = model_of("q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c)")
    found = fuse(model)
    assert ops(found) == {"MatMul": 1, "Split": 1}
    assert_same(model, found)


def test_users_of_the_parts_come_after_the_split() -> None:
    model = model_of(
        """xa = MatMul(x, a) ra = Relu(xa) q = Add(ra, a1) k = MatMul(ra, b) xb = MatMul(x, b)
        v = MatMul(xb, c)"""
    )
    found = fuse(model)
    assert ops(found) == {"MatMul": 3, "Split": 1, "Relu": 1, "Add": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        "q = MatMul(x, a) k = MatMul(z, b)",
        "q = MatMul(x, a) k = MatMul(x, z)",
        "q = MatMul(a, x) k = MatMul(b, x)",
        "q = MatMul(x, a) k = MatMul(x, stack)",
        "q = MatMul(x, a) k = Gemm(x, b)",
    ],
)
def test_other_matmuls_stay(nodes: str) -> None:
    model = typed(
        f"""g (float[2,2] x, float[2,2] z) => (float q, float k) <
            float[2,2] a = {{1, 2, 3, 4}}, float[2,2] b = {{1, 0, 2, 1}},
            float[1,2,2] stack = {{1, 0, 2, 1}}
        > {{ {nodes} }}"""
    )
    assert ops(fuse(model)) == ops(model)


def test_an_addition_that_is_no_bias_stays_behind_the_split() -> None:
    model = model_of(
        """xa = MatMul(x, a) q = Add(xa, one) xb = MatMul(x, b) k = Add(xb, xa)
        xc = MatMul(x, c) v = Mul(xc, c1)"""
    )
    found = fuse(model)
    assert ops(found) == {"MatMul": 1, "Split": 1, "Add": 2, "Mul": 1}
    assert_same(model, found)


def test_matmuls_with_an_attention_between_them_stay_apart() -> None:
    model = typed(
        """g (float[3,2] x) => (float[3,2] q, float[3,2] k) <
            float[2,2] a = {1, 2, 3, 4}, float[2,2] b = {1, 0, 2, 1}
        > {
            xa = MatMul(x, a) t = Transpose(xa) s = MatMul(x, t) q = MatMul(s, xa)
            k = MatMul(x, b)
        }"""
    )
    assert ops(fuse(model)) == ops(model)


def test_two_groups_of_one_graph() -> None:
    model = model_of(
        """q = MatMul(x, a) xb = MatMul(x, b) za = MatMul(z, a) zb = MatMul(z, b)
        k = Add(xb, za) v = MatMul(zb, c)"""
    )
    found = fuse(model)
    assert ops(found) == {"MatMul": 3, "Split": 2, "Add": 1}
    assert_same(model, found)


def test_plans_share_the_joined_weights() -> None:
    cache = ConstantCache()
    model = model_of("q = MatMul(x, a) k = MatMul(x, b) xc = MatMul(x, c) v = Add(xc, c1)")
    plans = [fuse(model, cache) for _ in range(2)]
    for name in ("MatMul_0_joined_MatMul_constant", "MatMul_0_joined_Add_constant"):
        first, second = (plan.graph.initializers[name].constant for plan in plans)
        assert first is second


def test_equal_biases_without_a_place_are_told_apart() -> None:
    cache = ConstantCache()
    model = model_of(
        """xa = MatMul(x, a) q = Add(xa, a1) k = MatMul(x, b)
        za = MatMul(z, a) zb = MatMul(z, b) zb1 = Add(zb, a1) zab = Add(za, zb1)
        v = MatMul(zab, c)"""
    )
    found = fuse(model, cache)
    assert ops(found)["Split"] == 2
    assert_same(model, found)


def test_nodes_for_different_devices_stay_apart() -> None:
    model = model_of("q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c)")
    model.node("MatMul_1").affinity = "CPU.1"
    found = fuse(model)
    assert ops(found) == {"MatMul": 2, "Split": 1}
    assert_same(model, found)


def test_inner_names_stay_unique_and_outputs_keep_theirs() -> None:
    model = model_of("q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c)")
    report = run_passes(model, [SharedInputFusion(ConstantCache())])
    assert [value.name for value in model.outputs] == ["q", "k", "v"]
    assert report.removed_names == ()
    assert report.patch_count == 1


def test_vectors_are_split_on_their_only_axis() -> None:
    model = typed(
        """g (float[2] x) => (float[2] q, float[2] k) <
            float[2,2] a = {1, 2, 3, 4}, float[2,2] b = {1, 0, 2, 1}
        > { q = MatMul(x, a) k = MatMul(x, b) }"""
    )
    found = fuse(model)
    assert ops(found) == {"MatMul": 1, "Split": 1}
    assert_same(model, found, {"x": np.array([1, 2], np.float32)})
