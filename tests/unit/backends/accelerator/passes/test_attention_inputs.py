"""Which matmuls become one before an attention, and which columns it then reads."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.passes import plan_passes
from aioinfer.runtime.graph import Model, Node
from aioinfer.runtime.passes import ConstantFolding, DeadCode, Pass, run_passes
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator
from unit.runtime.passes.transformer_models import typed

MATMULS = "q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c)"
BIASES = """xa = MatMul(x, a) q = Add(xa, a1) xb = MatMul(x, b) k = Add(b1, xb)
            xc = MatMul(x, c) v = Add(xc, c1)"""
ATTENTION = """
    q4 = Reshape(q, split) qh = Transpose<perm = [0, 2, 1, 3]>(q4)
    k4 = Reshape(k, split) kh = Transpose<perm = [0, 2, 3, 1]>(k4)
    v4 = Reshape(v, split) vh = Transpose<perm = [0, 2, 1, 3]>(v4)
    s = MatMul(qh, kh) p = Softmax<axis = -1>(s) m = MatMul(p, vh)
    t = Transpose<perm = [0, 2, 1, 3]>(m) y = Reshape(t, together)
"""


def constants() -> str:
    """Write weights of three matmuls of 4 columns each, and of one of 12."""
    chance = np.random.default_rng(0)
    shapes = {"a": "4,4", "b": "4,4", "c": "4,4", "a1": "4", "b1": "4", "c1": "4", "abc": "4,12"}
    texts = ["int64[4] split = {2, 3, 2, 2}", "int64[3] together = {2, 3, 4}"]
    texts += ["int64[1] none = {0}", "int64[1] two = {2}", "int64[1] last = {2}"]
    texts += ["int64[4] one = {2, 3, 1, 2}"]
    texts += ["int64[3] thirds = {4, 4, 4}"]
    for name, shape in shapes.items():
        count = int(np.prod([int(length) for length in shape.split(",")]))
        numbers = ", ".join(f"{number:.3f}" for number in chance.normal(size=count))
        texts.append(f"float[{shape}] {name} = {{{numbers}}}")
    return ", ".join(texts)


def model(nodes: str, attention: str = ATTENTION, outputs: str = "float[2,3,4] y") -> Model:
    head = "g (float[2,3,4] x, float[2,3,4] z, float[4,4] w)"
    return typed(f"{head} => ({outputs}) <{constants()}> {{ {nodes} {attention} }}")


def rewritten(given: Model, *more: Pass) -> Model:
    found = given.copy()
    run_passes(found, (ConstantFolding(), *(more or plan_passes()), DeadCode()))
    return found


def ops(given: Model) -> Counter[str]:
    return Counter(node.op_type for node in given.graph.nodes)


def attention_of(given: Model) -> Node:
    (node,) = (node for node in given.graph.nodes if node.op_type == "Attention")
    return node


def content(node: Node, index: int) -> np.ndarray:
    value = node.inputs[index]
    assert value is not None
    assert value.constant is not None
    return value.constant


@pytest.mark.parametrize("nodes", [MATMULS, BIASES], ids=["plain", "biases"])
def test_three_matmuls_of_one_value_become_one_that_the_heads_read(nodes: str) -> None:
    given = model(nodes)
    matmul, attention = rewritten(given).graph.nodes
    assert (matmul.op_type, attention.op_type) == ("MatMul", "Attention")
    assert list(attention.inputs) == [matmul.outputs[0]] * 3
    assert attention.attributes["columns"] == [0, 4, 8]
    weights = [given.graph.initializers[name].constant for name in "abc"]
    np.testing.assert_array_equal(content(matmul, 1), np.concatenate(weights, axis=1))
    assert len(matmul.fused_from) == nodes.count("=")


def test_a_matmul_without_a_bias_is_given_zeros() -> None:
    found = rewritten(model("xa = MatMul(x, a) q = Add(xa, a1) k = MatMul(x, b) v = MatMul(x, c)"))
    matmul, _ = found.graph.nodes
    np.testing.assert_array_equal(content(matmul, 3)[4:], np.zeros(8))
    assert content(matmul, 3)[:4].all()


def test_keys_and_values_of_another_value_are_joined_without_the_queries() -> None:
    found = rewritten(model("q = MatMul(x, a) k = MatMul(z, b) v = MatMul(z, c)"))
    query, joined, attention = found.graph.nodes
    assert list(attention.inputs) == [query.outputs[0], *[joined.outputs[0]] * 2]
    assert attention.attributes["columns"] == [0, 0, 4]


@pytest.mark.parametrize(
    ("nodes", "matmuls"),
    [
        ("q = MatMul(x, a) zx = Neg(x) k = MatMul(zx, b) v = MatMul(z, c)", 3),
        ("q = MatMul(x, a) k = MatMul(x, w) v = MatMul(z, c)", 3),
        ("q = MatMul(x, a) k = MatMul(x, w) v = MatMul(x, w)", 3),
        ("q = MatMul(x, a) k = Identity(x) v = Identity(z)", 1),
        ("xa = MatMul(x, a) q = Relu(xa) xb = MatMul(x, b) k = Relu(xb) v = MatMul(x, c)", 3),
    ],
    ids=["different inputs", "other inputs", "not constant", "no matmuls", "work in between"],
)
def test_other_matmuls_stay(nodes: str, matmuls: int) -> None:
    found = rewritten(model(nodes))
    assert ops(found)["MatMul"] == matmuls
    assert "columns" not in attention_of(found).attributes


def test_what_somebody_else_uses_stays_a_matmul_of_its_own() -> None:
    nodes = f"{MATMULS} seen = Neg(k)"
    found = rewritten(model(nodes, outputs="float[2,3,4] y, float[2,3,4] seen"))
    attention = attention_of(found)
    assert ops(found) == {"MatMul": 2, "Attention": 1, "Neg": 1}
    assert attention.attributes["columns"] == [0, 0, 4]
    assert attention.inputs[0] is attention.inputs[2] is not attention.inputs[1]


def test_a_value_that_the_network_returns_stays_a_matmul_of_its_own() -> None:
    found = rewritten(model(MATMULS, outputs="float[2,3,4] y, float[2,3,4] q"))
    assert ops(found) == {"MatMul": 2, "Attention": 1}


def test_heads_of_different_counts_stay_as_they_are() -> None:
    attention = ATTENTION.replace("k4 = Reshape(k, split)", "k4 = Reshape(k0, one)")
    given = model(f"{MATMULS} k0 = Slice(k, none, two, last)", attention)
    found = rewritten(given)
    assert "Attention" not in ops(found)
    assert ops(found)["MatMul"] == 5


PACKED = "xabc = MatMul(x, abc) q, k, v = Split<axis = {axis}>(xabc, thirds)"


@pytest.mark.parametrize("axis", [-1, 2])
def test_a_split_by_the_model_is_read_in_place_as_well(axis: int) -> None:
    found = rewritten(model(PACKED.format(axis=axis)))
    assert ops(found) == {"MatMul": 1, "Attention": 1}
    assert attention_of(found).attributes["columns"] == [0, 4, 8]


def test_parts_in_another_order_have_their_own_columns() -> None:
    found = rewritten(model("xabc = MatMul(x, abc) v, q, k = Split<axis = 2>(xabc, thirds)"))
    assert attention_of(found).attributes["columns"] == [4, 8, 0]


def test_a_split_that_somebody_else_reads_stays() -> None:
    head = "g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] seen)"
    attention = "y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)"
    nodes = f"{PACKED.format(axis=2)} seen = Neg(v) {attention}"
    found = rewritten(typed(f"{head} <{constants()}> {{ {nodes} }}", opset=23))
    assert ops(found) == {"MatMul": 1, "Split": 1, "Neg": 1, "Attention": 1}
    assert "columns" not in attention_of(found).attributes


def test_plans_of_one_network_share_the_joined_weights() -> None:
    given, passes = model(BIASES), plan_passes()
    first, second = (next(iter(rewritten(given, *passes).graph.nodes)) for _ in range(2))
    for index in (1, 3):
        assert content(first, index) is content(second, index)
    other = next(iter(rewritten(given, *plan_passes()).graph.nodes))
    assert content(first, 1) is not content(other, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("heads", "depth", "is_crossing"), [(3, 5, False), (2, 8, True)])
def test_packed_heads_give_what_reference_gives(
    core: Core, heads: int, depth: int, is_crossing: bool, dtype: str
) -> None:
    """A matmul of 15 or 16 columns begins where no part of a buffer can."""
    chance, width = np.random.default_rng(0), heads * depth
    lengths = {"x": 7, "z": 9}
    inputs = {
        name: chance.normal(size=(2, rows, width)).astype(dtype) for name, rows in lengths.items()
    }
    sources = dict(zip("qkv", "xzz" if is_crossing else "xxx", strict=True))
    known: dict[str, np.ndarray] = {}
    nodes = []
    for name, source in sources.items():
        known[f"{name}_weights"] = chance.normal(size=(width, width)).astype(dtype) / 4
        known[f"{name}_bias"] = chance.normal(size=width).astype(dtype)
        known[f"{name}_shape"] = np.array([2, lengths[source], heads, depth])
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            operator("MatMul", source, f"{name}_weights", outputs=[f"{name}0"]),
            operator("Add", f"{name}0", f"{name}_bias", outputs=[f"{name}1"]),
            operator("Reshape", f"{name}1", f"{name}_shape", outputs=[f"{name}2"]),
            operator("Transpose", f"{name}2", outputs=[f"{name}3"], perm=perm),
        ]
    known["shape"] = np.array([2, 7, width])
    nodes += [
        operator("MatMul", "q3", "k3", outputs=["scores"]),
        operator("Softmax", "scores", outputs=["p"], axis=-1),
        operator("MatMul", "p", "v3", outputs=["mixed"]),
        operator("Transpose", "mixed", outputs=["merged"], perm=[0, 2, 1, 3]),
        operator("Reshape", "merged", "shape"),
    ]
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    given = inputs if is_crossing else {"x": inputs["x"]}
    made = model_of(nodes, given, constants=known)
    with core.load_network(made, "OPENCL") as network:
        found = [node.op_type for node in network.runtime_graph().nodes]
    assert found == ["MatMul"] * (2 if is_crossing else 1) + ["Attention"]
    assert_same_as_reference(core, made, given, bound=1e-5 if dtype == "float32" else 1e-2)
