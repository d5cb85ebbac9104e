"""Types of normalisations, by hand, where they contradict themselves, and beside onnx's."""

import random
from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

X, C = "float16[n,6,h,8]", "float16[6]"

LIKE_X: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("BatchNormalization", [X, C, C, C, C], {}),
    ("BatchNormalization", [X, C, C, "float32[6]", "float32[6]"], {"training_mode": 0}),
    ("InstanceNormalization", [X, C, C], {}),
    ("GroupNormalization", [X, C, C], {"num_groups": 3}),
    ("LayerNormalization", [X, "float16[8]"], {}),
    ("LayerNormalization", [X, "float16[6,1,8]", "float16[6,h,8]"], {"axis": 1}),
    ("RMSNormalization", [X, "float16[8]"], {}),
    ("LRN", [X], {"size": 3}),
    ("LpNormalization", [X], {"axis": -4, "p": 1}),
    ("MeanVarianceNormalization", [X], {}),
    ("MeanVarianceNormalization", ["float16[n,h]"], {"axes": [0, -1]}),
    ("RotaryEmbedding", [X, "float16[n,h,4]", "float16[n,h,4]"], {}),
    ("RotaryEmbedding", ["float16[n,t,64]"] + ["float16[n,t,4]"] * 2, {"num_heads": 8}),
    ("RotaryEmbedding", [X, "float16[50,4]", "float16[50,4]", "int64[n,h]"], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), LIKE_X)
def test_a_normalisation_keeps_shape_and_type(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled(op_type, inputs, attributes) == [inputs[0]]


def test_a_normalisation_by_the_root_of_a_mean_has_the_type_of_its_scale() -> None:
    (made,) = ruled("RMSNormalization", ["float32[n,6,h,8]", "float16[8]"], {}) or [None]
    assert made == X


CONTRADICTIONS: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("BatchNormalization", [X, C, C, C, "float16[5]"], {}),
    ("BatchNormalization", [X, C, C, C, "float16[6,1]"], {}),
    ("BatchNormalization", [X, C, C, C], {}),
    ("BatchNormalization", [X, C, C, C, C], {"training_mode": 1}),
    ("BatchNormalization", ["float16[]", C, C, C, C], {}),
    ("InstanceNormalization", [X, C, "float16[8]"], {}),
    ("InstanceNormalization", [X, C], {}),
    ("GroupNormalization", [X, C, C], {}),
    ("GroupNormalization", [X, C, C], {"num_groups": 4}),
    ("GroupNormalization", [X, C, C], {"num_groups": 0}),
    ("GroupNormalization", [X, "float16[2]", "float16[2]"], {"num_groups": 3}),
    ("LayerNormalization", [X], {}),
    ("LayerNormalization", [X, "float16[7]"], {}),
    ("LayerNormalization", [X, "float16[8]", "float16[1,1,1,1,8]"], {}),
    ("LayerNormalization", [X, "float16[8]"], {"axis": 4}),
    ("LayerNormalization", [X, "float16[8]"], {"stash_type": 7}),
    ("LayerNormalization", [X, "float16[8]"], {"stash_type": 700}),
    ("RMSNormalization", [X, "float16[7]"], {}),
    ("LRN", [X], {}),
    ("LRN", ["float16[6]"], {"size": 3}),
    ("LpNormalization", [X], {"axis": 4}),
    ("MeanVarianceNormalization", ["float16[n,h]"], {}),
    ("MeanVarianceNormalization", [X], {"axes": 1}),
    ("RotaryEmbedding", [X, "float16[n,h,4]"], {}),
    ("RotaryEmbedding", [X, "float16[n,h,4]", "float16[n,h,5]"], {}),
    ("RotaryEmbedding", [X, "float16[50,4]", "float16[50,4]"], {}),
    ("RotaryEmbedding", ["float16[n,t,64]"] + ["float16[n,t,4]"] * 2, {}),
    ("RotaryEmbedding", ["float16[n,t,64]"] + ["float16[n,t,4]"] * 2, {"num_heads": 7}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CONTRADICTIONS)
def test_a_normalisation_that_contradicts_itself_has_no_type(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled(op_type, inputs, attributes) is None


def test_training_gives_the_running_statistics() -> None:
    inputs: list[Given] = ["float16[n,c,h]", C, C, "float32[?]", "float32[6]"]
    found = ruled("BatchNormalization", inputs, {"training_mode": 1}, outputs=3)
    assert found == ["float16[n,c,h]", "float32[c]", "float32[6]"]
    assert ruled("BatchNormalization", inputs, {}, outputs=3) is None


def test_mean_and_deviation_have_the_type_in_which_they_are_computed() -> None:
    inputs: list[Given] = [X, "float16[8]", None]
    found = ruled("LayerNormalization", inputs, {"axis": 2}, outputs=3)
    assert found == [X, "float32[n,6,1,1]", "float32[n,6,1,1]"]
    found = ruled("LayerNormalization", inputs, {"stash_type": 16}, outputs=2)
    assert found == [X, "bfloat16[n,6,h,1]"]


@pytest.mark.parametrize("seed", range(40))
def test_random_normalisations_are_what_onnx_makes_of_them(seed: int) -> None:
    chance = random.Random(seed)
    shape = [chance.randint(1, 6) for _ in range(chance.randint(2, 5))]
    x = "float32" + str(shape).replace(" ", "")
    axis = chance.randrange(-len(shape), len(shape))
    channels = f"float32[{shape[1]}]"
    last = f"float32[{shape[-1]}]"
    op_type, inputs, attributes, outputs = chance.choice(
        [
            ("BatchNormalization", [x] + [channels] * 4, {}, 1),
            ("BatchNormalization", [x] + [channels] * 4, {"training_mode": 1}, 3),
            ("InstanceNormalization", [x, channels, channels], {}, 1),
            ("LayerNormalization", [x, last], {"axis": axis}, 3),
            ("RMSNormalization", [x, last], {"axis": axis}, 1),
            ("LpNormalization", [x], {"axis": axis}, 1),
            ("LRN", [x], {"size": 3}, 1),
        ]
    )
    found = ruled(op_type, inputs, attributes, outputs)
    assert found == inferred_by_onnx(op_type, inputs, attributes, outputs)
