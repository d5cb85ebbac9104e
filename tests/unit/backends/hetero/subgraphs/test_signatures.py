"""Shapes of the whole model, told to its subgraphs."""

from __future__ import annotations

from onnx import parser

from aioinfer.backends.hetero.subgraphs.cutting import cut_model
from aioinfer.backends.hetero.subgraphs.selection import Subgraph
from aioinfer.backends.hetero.subgraphs.signatures import subgraph_signatures
from aioinfer.runtime.onnx_reader import read_model


def signatures(text: str, *pieces: tuple[str, ...], shape: dict[str, tuple[int, ...]]) -> list:
    model = read_model(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}'))
    subgraphs = [Subgraph(str(index), piece) for index, piece in enumerate(pieces)]
    return subgraph_signatures(model, cut_model(model, subgraphs), [shape])


def test_a_shape_that_is_computed_is_known_if_it_follows_from_the_input() -> None:
    text = """
        g (float[n,4] x) => (float[m] y)
        <int64[1] minus = {-1}> {
            [shape] s = Shape (x)
            [product] t = ReduceProd <keepdims = 1> (s)
            [flat] f = Reshape (x, t)
            [relu] y = Relu (f)
        }
    """
    found = signatures(text, ("shape", "product", "flat"), ("relu",), shape={"x": (3, 4)})
    assert found == [[{"x": (3, 4)}], [{"f": (12,)}]]


def test_a_value_that_folding_removes_is_still_known() -> None:
    text = """
        g (float[n,4] x) => (int64[1] y)
        {
            [shape] s = Shape <start = 0, end = 1> (x)
            [neg] y = Neg (s)
        }
    """
    assert signatures(text, ("shape",), ("neg",), shape={"x": (3, 4)})[1] == [{"s": (1,)}]


def test_a_shape_that_depends_on_data_is_left_to_the_first_run() -> None:
    text = """
        g (float[n] x) => (int64[1, m] y)
        {
            [nonzero] i = NonZero (x)
            [neg] y = Neg (i)
        }
    """
    assert signatures(text, ("nonzero",), ("neg",), shape={"x": (3,)}) == [[{"x": (3,)}], []]
