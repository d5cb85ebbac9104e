"""Types of recurrent networks, by hand, where they contradict themselves, and beside onnx's."""

import random
from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

X, W, R = "float32[t,n,8]", "float32[1,20,8]", "float32[1,20,5]"
BOTH = {"direction": "bidirectional"}

CASES: list[tuple[list[Given], dict[str, Any], list[str]]] = [
    ([X, W, R], {"hidden_size": 5}, ["float32[t,1,n,5]", "float32[1,n,5]"]),
    ([X, W, R], {}, ["float32[t,1,n,5]", "float32[1,n,5]"]),
    ([X, W, R], {"direction": "reverse"}, ["float32[t,1,n,5]", "float32[1,n,5]"]),
    ([X, "float32[2,20,8]", "float32[2,20,5]"], BOTH, ["float32[t,2,n,5]", "float32[2,n,5]"]),
    ([X, W, R], {"layout": 1}, ["float32[t,n,1,5]", "float32[t,1,5]"]),
    ([X, "float32[?,?,?]", "float32[?,?,h]"], {}, ["float32[t,1,n,h]", "float32[1,n,h]"]),
    (
        [X, W, R, "float32[1,40]", "int32[n]", "float32[1,n,5]", "float32[1,n,5]"],
        {},
        ["float32[t,1,n,5]", "float32[1,n,5]"],
    ),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), CASES)
def test_all_states_and_the_last_ones_are_given(
    inputs: list[Given], attributes: dict[str, Any], expected: list[str]
) -> None:
    assert ruled("LSTM", inputs, attributes, outputs=3) == [*expected, expected[1]]
    assert ruled("LSTM", inputs, attributes) == expected[:1]


def test_gru_and_rnn_have_fewer_gates_and_no_cell() -> None:
    expected = ["float32[t,1,n,5]", "float32[1,n,5]"]
    assert ruled("GRU", [X, "float32[1,15,8]", "float32[1,15,5]"], {}, outputs=2) == expected
    assert ruled("RNN", [X, "float32[1,5,8]", "float32[1,5,5]"], {}, outputs=2) == expected
    assert ruled("GRU", [X, W, R], {}) is None
    assert ruled("RNN", [X, W, R], {}) is None


CONTRADICTIONS: list[tuple[list[Given], dict[str, Any]]] = [
    ([X, W], {}),
    (["float32[n,8]", W, R], {}),
    ([X, "float32[20,8]", R], {}),
    ([X, "float32[1,20,7]", R], {}),
    ([X, W, "float32[1,20,4]"], {}),
    ([X, W, R], {"hidden_size": 4}),
    ([X, W, "float32[1,20,0]"], {}),
    ([X, W, R], BOTH),
    ([X, W, R], {"direction": "sideways"}),
    ([X, W, R], {"layout": 2}),
    (["float32[t,3,8]", W, R, None, "int32[4]"], {}),
    (["float32[t,3,8]", W, R, None, None, "float32[1,4,5]"], {}),
    (["float32[t,3,8]", W, R, None, None, None, "float32[3,5]"], {}),
]


@pytest.mark.parametrize(("inputs", "attributes"), CONTRADICTIONS)
def test_what_contradicts_itself_has_no_type(
    inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled("LSTM", inputs, attributes, outputs=3) is None


@pytest.mark.parametrize("seed", range(30))
def test_random_networks_are_what_onnx_makes_of_them(seed: int) -> None:
    chance = random.Random(seed)
    op_type, gates, outputs = chance.choice([("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)])
    steps, batch, width, hidden = (chance.randint(1, 5) for _ in range(4))
    direction, count = chance.choice([("forward", 1), ("reverse", 1), ("bidirectional", 2)])
    attributes = {
        "direction": direction,
        "hidden_size": hidden,
        "layout": chance.randint(0, 1),
    }
    inputs: list[Given] = [
        f"float32[{steps},{batch},{width}]",
        f"float32[{count},{gates * hidden},{width}]",
        f"float32[{count},{gates * hidden},{hidden}]",
    ]
    found = ruled(op_type, inputs, attributes, outputs)
    assert found == inferred_by_onnx(op_type, inputs, attributes, outputs)
