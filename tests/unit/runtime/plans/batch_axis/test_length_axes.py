"""Where a length of inputs comes back in outputs, and where that is unknown."""

from __future__ import annotations

import re

import pytest
from onnx import parser

from aioinfer import Core
from aioinfer.runtime.plans.batch_axis import find_batch_axis, find_length_axes, input_axes

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
X = "(float[b, s, 4] x)"


def axes(text: str, *lengths: int) -> object:
    with Core() as core:
        model = core.read_model(parser.parse_model(f"{HEADER} {text}").SerializeToString())
        assert not isinstance(find_batch_axis(model), str)
        return find_length_axes(model, "s", lengths or (1, 7, 8))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{X} => (float[b, t, 4] y) {{ y = Relu (x) }}", {"y": (1,)}),
        (f"{X} => (float[b, 4, s] y) {{ y = Transpose <perm = [0, 2, 1]> (x) }}", {"y": (2,)}),
        (
            f"{X} => (float[b, s, t] y) "
            "{ z = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, z) }",
            {"y": (1, 2)},
        ),
        (
            f"{X} => (float[b, s, 4] y, float[b, 4] z) <int64 zero = {{0}}> "
            "{ y = Relu (x) z = Gather <axis = 1> (x, zero) }",
            {"y": (1,)},
        ),
        (
            "(float[b, s, 4] x, float[b, other] k) => (float[b, s, 4] y, float[b, other] z) "
            "{ y = Relu (x) z = Relu (k) }",
            {"y": (1,)},
        ),
        (  # no symbol tells how long a slice is: a length is the least of two
            f"{X} => (float[b, s, 4] y) "
            "<int64[1] zero = {0}, int64[1] most = {64}, int64[1] one = {1}> "
            "{ y = Slice (x, zero, most, one) }",
            {"y": (1,)},
        ),
    ],
)
def test_lengths_are_followed_to_the_outputs(text: str, wanted: object) -> None:
    assert axes(text) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{X} => (float[c, 4] y) <int64[2] t = {{-1, 4}}> {{ y = Reshape (x, t) }}",
            "dimension 0 of output 'y' is made of it and others",
        ),
        (
            f"{X} => (float[b, s, 4] y) {{ y = Concat <axis = 1> (x, x) }}",  # says the wrong thing
            "whether dimension 1 of output 'y' is as long",
        ),
        (
            f"{X} => (float[b, s, 4] y) "
            "<int64[1] zero = {0}, int64[1] most = {4}, int64[1] one = {1}> "
            "{ y = Slice (x, zero, most, one) }",
            "whether dimension 1 of output 'y' is as long",
        ),
        (
            f"{X} => (float[b, s, 4] y) <float[1, 4, 4] table = {{{', '.join(['1'] * 16)}}}> "
            "{ y = Add (x, table) }",
            r"a length of 7 contradicts the model: Add \(node",
        ),
    ],
)
def test_what_cannot_be_cut_back_is_refused_with_the_output(text: str, reason: str) -> None:
    found = axes(text)
    assert isinstance(found, str), found
    assert re.search(reason, found), found


TABLE = f"table = {{{', '.join(['1'] * 256)}}}"
CONSTANTS = (
    "<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 last = {-1}, int64[1] ends = {-1},"
    " int64[1] ahead = {1}, int64[1] most = {64}, float[64, 4] table>"
)
COUNT = "s = Shape (x) n = Gather (s, one)"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            f"{COUNT} f = Cast <to = 1> (n) t = ReduceSum <keepdims = 0> (x, ahead) y = Div (t, f)",
            r"Div \(node .*computes with the length of the sequence",
        ),
        (
            f"{COUNT} f = Cast <to = 1> (n) r = Sqrt (f) y = Mul (x, r)",
            r"Mul \(node .*computes with the length",
        ),
        (f"{COUNT} l = Sub (n, one) y = Gather <axis = 1> (x, l)", r"Gather \(node"),
        (
            "s = Shape <start = 1> (x) c = ReduceProd <keepdims = 0> (s) f = Cast <to = 1> (c) "
            "y = Div (x, f)",
            r"Div \(node",
        ),
        (
            f"{COUNT} m = Mul (n, two) p = Range (n, m, one) e = Gather (table, p) y = Add (x, e)",
            r"Add \(node",
        ),
        ("y = Gather <axis = 1> (x, last)", r"Gather \(node .*counted from the end"),
        ("y = Slice (x, ends, most, ahead)", r"Slice \(node .*counted from the end"),
        ("y = ReduceMean <keepdims = 0> (x, ahead)", r"ReduceMean \(node .*divides by the length"),
        (f"{COUNT} y = Relu (x) z = Identity (n)", "output 'z' holds the length itself"),
    ],
)
def test_what_computes_with_the_length_is_refused_with_the_node(nodes: str, reason: str) -> None:
    outputs = "float[b, n] y, int64 z" if " z = " in nodes else "float[b, n] y"
    found = axes(f"{X} => ({outputs}) {CONSTANTS.replace('table', TABLE)} {{ {nodes} }}")
    assert isinstance(found, str), found
    assert re.search(reason, found), found


@pytest.mark.parametrize(
    "nodes",
    [
        f"{COUNT} p = Range (zero, n, one) e = Gather (table, p) y = Add (x, e)",
        f"{COUNT} l = Unsqueeze (n, none) e = Slice (table, none, l) y = Add (x, e)",
        "s = Shape (x) w = Gather (s, two) f = Cast <to = 1> (w) r = Sqrt (f) y = Div (x, r)",
        "s = Shape (x) o = ConstantOfShape (s) y = Add (x, o)",
        "s = Shape (x) r = Relu (x) y = Reshape (r, s)",
        "y = Gather <axis = 2> (x, ends)",
    ],
)
def test_what_only_asks_how_long_it_is_is_not_refused(nodes: str) -> None:
    constants = CONSTANTS.replace("table", TABLE).replace(">", ", int64[1] none = {0}>")
    assert axes(f"{X} => (float[b, n, 4] y) {constants} {{ {nodes} }}") == {"y": (1,)}


def test_inputs_say_where_they_have_the_dimension() -> None:
    with Core() as core:
        text = "(float[b, s, s] x, int64[b, s] ids, float[b, 3] k) => (float[b, s, s] y) "
        text += "{ y = Relu (x) }"
        model = core.read_model(parser.parse_model(f"{HEADER} {text}").SerializeToString())
        assert input_axes(model.inputs, "s") == {"x": (1, 2), "ids": (1,)}
