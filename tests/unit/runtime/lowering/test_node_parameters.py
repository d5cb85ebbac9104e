"""Texts and integers that a node says."""

import numpy as np

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.node_parameters import integers_of, text_of


def test_integers_are_read_flat_from_constants_only() -> None:
    constant = Value("c", None, np.array([[1, -2]], np.int32))
    node = Node("Op", [Value("x"), None, constant], [Value("y")], {}, name="n")
    assert [integers_of(node, index) for index in range(4)] == [None, None, [1, -2], None]


def test_a_text_may_be_bytes_or_left_out() -> None:
    node = Node("Op", [], [Value("y")], {"mode": b"wrap", "other": "edge"}, name="n")
    assert text_of(node, "mode", "constant") == "wrap"
    assert text_of(node, "other", "constant") == "edge"
    assert text_of(node, "absent", "constant") == "constant"
