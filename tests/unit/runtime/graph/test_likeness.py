"""Models that differ in names alone have one structure, and others none of it."""

from __future__ import annotations

import pytest
from onnx import parser

from aioinfer.runtime.graph.likeness import structure_of
from aioinfer.runtime.onnx_reader import read_model

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
BASE = "g (float[n, 4] x) => (float[n, 4] y) { a = Relu(x) y = LeakyRelu <alpha = 0.5> (a) }"


def structure(text: str) -> object:
    return structure_of(read_model(parser.parse_model(f"{HEAD} {text}").SerializeToString()))


def test_names_are_no_structure() -> None:
    other = BASE.replace(" a", " hidden").replace("(a)", "(hidden)").replace("g (", "h (")
    assert structure(BASE) == structure(other.replace("x)", "given)").replace("] x", "] given"))
    assert hash(structure(BASE)) == hash(structure(other))


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ("Relu(x)", "Neg(x)"),
        ("0.5", "0.25"),
        ("[n, 4] x", "[n, 5] x"),
        ("[n, 4] x", "[m, 4] x"),
        ("(a) }", "(x) }"),
        ("float[n, 4] x", "float[n, 4] x, float[n, 4] unused"),
        ("float[n, 4] y)", "float[n, 4] y, float[n, 4] a)"),
        ("float", "float16"),
    ],
)
def test_all_else_is(was: str, is_now: str) -> None:
    changed = BASE.replace(was, is_now)
    assert changed != BASE
    assert structure(BASE) != structure(changed)


def test_small_constants_count_by_their_content() -> None:
    def adding(name: str, number: str) -> object:
        constant = f"<float[1] {name} = {{{number}}}>"
        return structure(f"g (float[4] x) => (float[4] y) {constant} {{ y = Add(x, {name}) }}")

    assert adding("k", "1") is not None
    assert adding("k", "1") == adding("other", "1")
    assert adding("k", "1") != adding("k", "2")
    assert adding("k", "0") != adding("k", "-0")


def test_bodies_and_large_constants_have_none() -> None:
    ones = ", ".join(["1"] * 4096)
    constant = f"<float[4096] k = {{{ones}}}>"
    large = f"g (float[4096] x) => (float[4096] y) {constant} {{ y = Add(x, k) }}"
    assert structure(large) is None
    body = "b () => (float[1] z) { z = Constant <value = float[1] {1}> () }"
    branches = f"<then_branch = {body}, else_branch = {body}>"
    assert structure(f"g (bool c) => (float[1] y) {{ y = If (c) {branches} }}") is None
