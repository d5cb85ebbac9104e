"""Texts and integers that a node holds beside its data."""

import numpy as np

from aioinfer.runtime.graph import Node, Value


def test_integers_are_read_flat_from_constants_only() -> None:
    constant = Value("c", None, np.array([[1, -2]], np.int32))
    node = Node("Op", [Value("x"), None, constant], [Value("y")], {}, name="n")
    assert [node.integers_at(index) for index in range(4)] == [None, None, [1, -2], None]


def test_a_text_may_be_bytes_or_left_out() -> None:
    node = Node("Op", [], [Value("y")], {"mode": b"wrap", "other": "edge"}, name="n")
    assert node.text("mode", "constant") == "wrap"
    assert node.text("other", "constant") == "edge"
    assert node.text("absent", "constant") == "constant"
