"""Einsum beside numpy's, in both forms of lengths: known, and known when a run begins."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Graph, Model, Node, TensorType, Value
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.fusion.einsum_decomposition import EinsumDecomposition
from unit.runtime.passes.small_models import evaluate

LENGTHS = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 1, "i": 3, "j": 4, "k": 2}

EQUATIONS = [
    "ij->ij",
    "ij->ji",
    "ij->j",
    "ij->",
    "ji",
    "abcd->dbca",
    "i,j->ij",
    "i,i->i",
    "i,i->",
    "ij,jk->ik",
    "ij,jk",
    "ji,kj->ki",
    "abcd,abed->abce",
    "abcd,abde->abce",
    "abcd,cd->ab",
    "abcd,bade->ce",
    "abc,cbd->ad",
    "ab,cd->abcd",
    "abi,acj->aibjc",
    "ab,bc,cd->ad",
    "ab,ab,ab->b",
    "ab,cd,b->ca",
    "b,bc->c",
    "bc,c->b",
    "ia,jb->ji",
    "a b, b c -> a c",
]
WITH_OTHERS = [
    ("...ij,jk->...ik", [(2, 3, 4), (4, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...,...->...", [(2, 1), (2, 3)]),
    ("...ab->ab...", [(4, 5, 2, 3)]),
    ("i...,i...->...", [(3, 2), (3, 2)]),
    ("...i,j->j...", [(2, 3), (4,)]),
    ("a...b,bc->...ca", [(2, 4, 3), (3, 5)]),
    ("ab...,b->...a", [(2, 3), (3,)]),
    ("...ab,cb", [(4, 2, 3), (5, 3)]),
]
LEFT = [
    ("ii->i", [(3, 3)]),
    ("iij,j->i", [(3, 3, 2), (2,)]),
    ("...i->i", [(2, 3)]),
]


def shapes_of(equation: str) -> list[tuple[int, ...]]:
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    return [tuple(LENGTHS[letter] for letter in term) for term in terms]


def model_of(equation: str, shapes: list[tuple[int, ...]], dynamic: bool, dtype: DType) -> Model:
    rank = _rank_of_result(equation, shapes)
    inputs = []
    for place, shape in enumerate(shapes):
        dims = tuple(f"x{place}_{axis}" if dynamic else dim for axis, dim in enumerate(shape))
        inputs.append(Value(f"x{place}", TensorType(dtype, dims)))
    made = Value("y", TensorType(dtype, (None,) * rank))
    graph = Graph("g", inputs, [made])
    graph.append(Node("Einsum", inputs, [made], {"equation": equation}, name="e"))
    return Model(graph, {"": 23})


def _rank_of_result(equation: str, shapes: list[tuple[int, ...]]) -> int:
    if equation == "...i->i":  # which numpy refuses, and ONNX does not
        return 1
    return int(np.einsum(equation, *[np.zeros(shape) for shape in shapes]).ndim)


def decomposed(model: Model) -> Model:
    run_passes(model, [EinsumDecomposition()])
    return model


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("equation", "shapes"), [*((text, shapes_of(text)) for text in EQUATIONS), *WITH_OTHERS]
)
def test_sums_of_products(equation: str, shapes: list[tuple[int, ...]], dynamic: bool) -> None:
    model = decomposed(model_of(equation, shapes, dynamic, DType.FLOAT64))
    assert not model.graph.nodes_of("Einsum")
    generator = np.random.default_rng(0)
    given = {f"x{at}": generator.normal(size=shape) for at, shape in enumerate(shapes)}
    found = evaluate(model, given)["y"]
    wanted = np.einsum(equation, *given.values())
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("equation", "shapes"), LEFT)
def test_what_it_has_no_words_for_is_left(equation: str, shapes: list[tuple[int, ...]]) -> None:
    model = decomposed(model_of(equation, shapes, False, DType.FLOAT32))
    assert [node.op_type for node in model.graph.nodes] == ["Einsum"]


def test_whole_numbers_are_left() -> None:
    model = decomposed(model_of("ij,jk->ik", [(2, 3), (3, 4)], False, DType.INT32))
    assert len(model.graph.nodes_of("Einsum")) == 1


def test_a_product_of_stacks_needs_no_reshape() -> None:
    model = decomposed(
        model_of("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)], True, DType.FLOAT32)
    )
    assert [node.op_type for node in model.graph.nodes] == ["Transpose", "MatMul"]
    assert all(node.fused_from == ("e",) for node in model.graph.nodes)


@pytest.mark.parametrize("dynamic", [False, True])
def test_empty_axes(dynamic: bool) -> None:
    model = decomposed(model_of("abc,cbd->ad", [(2, 0, 3), (3, 0, 4)], dynamic, DType.FLOAT64))
    found = evaluate(model, {"x0": np.ones((2, 0, 3)), "x1": np.ones((3, 0, 4))})["y"]
    np.testing.assert_array_equal(found, np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("i,i", [(5,), (1,)]),
        ("i,i->i", [(1,), (5,)]),
        ("bij,bjk->bik", [(1, 2, 3), (4, 3, 5)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (1, 4), (1, 5)]),
        ("...ij,...jk->...ik", [(4, 2, 3), (1, 1, 5)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 1), (6, 1, 5, 4)]),
    ],
)
def test_an_axis_of_one_is_repeated(equation: str, shapes: list[tuple[int, ...]]) -> None:
    test_sums_of_products(equation, shapes, dynamic=False)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("abcd,bade->ce", [(2, 3, 3, 5), (3, 5, 2, 3)]),
        ("ab,ba->", [(2, 6), (3, 4)]),
        ("iab,jab->ij", [(3, 2, 6), (4, 4, 3)]),
    ],
)
def test_lengths_of_which_only_the_product_fits_are_refused(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    fitting = [(2,) * len(shape) for shape in shapes]
    model = decomposed(model_of(equation, fitting, True, DType.FLOAT64))
    assert not model.graph.nodes_of("Einsum")
    with pytest.raises(ValueError, match="broadcast"):  # numpy's, of the Expand
        evaluate(model, {f"x{at}": np.ones(shape) for at, shape in enumerate(shapes)})
