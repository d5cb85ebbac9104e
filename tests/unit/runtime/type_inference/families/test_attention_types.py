"""The types that Attention gives, with and without a past, by hand and beside onnx's."""

import random
from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

Q, K, V = "float32[n,8,t,16]", "float32[n,2,s,16]", "float32[n,2,s,10]"
HEADS = {"q_num_heads": 8, "kv_num_heads": 2}

CASES: list[tuple[list[Given], dict[str, int], list[str]]] = [
    (
        [Q, K, V],
        {},
        ["float32[n,8,t,10]", "float32[n,2,s,16]", "float32[n,2,s,10]", "float32[n,8,t,s]"],
    ),
    (
        ["float32[3,5,128]", "float32[3,7,32]", "float32[3,7,20]"],
        HEADS,
        ["float32[3,5,80]", "float32[3,2,7,16]", "float32[3,2,7,10]", "float32[3,8,5,7]"],
    ),
    (
        [
            *["float16[3,8,1,16]", "float16[3,2,1,16]", "float16[3,2,1,10]"],
            None,
            *["float16[3,2,6,16]", "float16[3,2,6,10]"],
        ],
        {},
        ["float16[3,8,1,10]", "float16[3,2,7,16]", "float16[3,2,7,10]", "float16[3,8,1,7]"],
    ),
    (
        [Q, K, V, None, "float32[n,2,p,16]", "float32[n,2,p,10]"],
        {},
        ["float32[n,8,t,10]", "float32[n,2,?,16]", "float32[n,2,?,10]", "float32[n,8,t,?]"],
    ),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), CASES)
def test_attention_gives_result_keys_values_and_scores(
    inputs: list[Given], attributes: dict[str, int], expected: list[str]
) -> None:
    assert ruled("Attention", inputs, attributes, outputs=4) == expected
    assert ruled("Attention", inputs, attributes) == expected[:1]


CONTRADICTIONS: list[tuple[list[Given], dict[str, int]]] = [
    ([Q, K], {}),
    ([Q, K, V], {"q_num_heads": -1}),
    ([Q, K, V], HEADS | {"kv_num_heads": -(2**31) - 1}),
    ([Q, "float16[n,2,s,16]", V], {}),
    ([Q, "float32[n,2,s,15]", V], {}),
    ([Q, "float32[n,3,s,16]", "float32[n,3,s,10]"], {}),
    ([Q, "float32[n,2,3,16]", "float32[n,2,4,10]"], {}),
    ([Q, "float32[n,s,32]", "float32[n,s,20]"], HEADS),
    (["float32[3,5,128]", "float32[3,7,32]", "float32[3,7,20]"], {}),
    (["float32[3,5,128]", "float32[3,7,32]", "float32[3,7,20]"], HEADS | {"kv_num_heads": 0}),
    (["float32[3,5,128]", "float32[3,7,32]", "float32[3,7,21]"], HEADS),
    (["float32[3,5,128]", "float32[4,7,32]", "float32[4,7,20]"], HEADS),
    ([Q, K, V, None, "float32[n,2,16]", "float32[n,2,p,10]"], {}),
    ([Q, K, V, None, "float32[n,2,p,16]", "float32[n,3,p,10]"], {}),
]


@pytest.mark.parametrize(("inputs", "attributes"), CONTRADICTIONS)
def test_attention_that_contradicts_itself_has_no_type(
    inputs: list[Given], attributes: dict[str, int]
) -> None:
    assert ruled("Attention", inputs, attributes) is None


@pytest.mark.parametrize("seed", range(30))
def test_random_attention_is_what_onnx_makes_of_it(seed: int) -> None:
    chance = random.Random(seed)
    batch, heads, times, queries, keys = (chance.randint(1, 4) for _ in range(5))
    key_size, value_size, past = (chance.randint(1, 4) for _ in range(3))
    q = [batch, heads * times, queries, key_size]
    k, v = [batch, heads, keys, key_size], [batch, heads, keys, value_size]
    olds = [[batch, heads, past, size] for size in (key_size, value_size)]
    attributes: dict[str, Any] = {}
    if chance.random() < 0.5:
        attributes = {"q_num_heads": heads * times, "kv_num_heads": heads}
        q, k, v = ([s[0], s[2], s[1] * s[3]] for s in (q, k, v))
    texts = ["float32" + str(shape).replace(" ", "") for shape in (q, k, v, *olds)]
    inputs: list[Given] = [*texts[:3], None, *texts[3:]]
    found = ruled("Attention", inputs, attributes, outputs=4)
    assert found == inferred_by_onnx("Attention", inputs, attributes, outputs=4)
    found = ruled("Attention", inputs[:3], attributes)
    assert found == inferred_by_onnx("Attention", inputs[:3], attributes)
