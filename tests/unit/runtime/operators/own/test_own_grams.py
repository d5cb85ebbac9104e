from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aioinfer.runtime.operators.own.own_grams import gram_vectorizer

WORDS: dict[str, Any] = {
    "max_gram_length": 3,
    "max_skip_count": 0,
    "min_gram_length": 1,
    "mode": "TF",
    "ngram_counts": [0, 3, 7],
    "ngram_indexes": [2, 0, 1, 5, 4, 3],
    "pool_int64s": [2, 3, 5, 2, 3, 5, 5, 3, 2, 5],
}


def by_onnx(x: np.ndarray[Any, Any], attributes: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Count by onnx.reference, which takes weights for those of columns, against ONNX's text."""
    if "weights" in attributes:
        columns = zip(attributes["ngram_indexes"], attributes["weights"], strict=True)
        attributes = {**attributes, "weights": [weight for _, weight in sorted(columns)]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    made = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", [info], [made])
    opsets = [helper.make_opsetid("", 9)]
    (found,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(
        None, {"x": x}
    )
    return np.asarray(found)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 1, 5, 200])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 2), (2, 3), (1, 3), (3, 3)])
def test_counts_are_those_of_onnx(mode: str, skips: int, least: int, most: int) -> None:
    wanted = {**WORDS, "mode": mode, "max_skip_count": skips}
    wanted |= {"min_gram_length": least, "max_gram_length": most}
    if mode != "TF":
        wanted["weights"] = [0.5, 2, 3, 0.25, 7, 1.5]
    for shape in ((17,), (4, 9), (3, 1), (3, 0)):
        x = np.random.default_rng(1).integers(2, 6, shape)
        found = gram_vectorizer(**wanted)(x)
        assert found.dtype == np.float32
        if x.size:
            np.testing.assert_array_equal(found, by_onnx(x, wanted))
        else:
            assert not found.any()


@pytest.mark.parametrize("mode", ["IDF", "TFIDF"])
def test_weights_are_those_of_the_pools_grams_and_not_of_columns(mode: str) -> None:
    vectorize = gram_vectorizer(
        max_gram_length=1,
        max_skip_count=0,
        min_gram_length=1,
        mode=mode,
        ngram_counts=[0],
        ngram_indexes=[3, 0, 3],
        pool_int64s=[7, 8, 9],
        weights=[0.5, 2, 4],
    )
    twice = 2 if mode == "TFIDF" else 1
    assert vectorize(np.array([7, 7, 8, 9])).tolist() == [2, 0, 0, 0.5 * twice + 4]


def test_texts_are_counted() -> None:
    texts = {**WORDS, "pool_int64s": (), "pool_strings": list("abcabccbac")}
    found = gram_vectorizer(**texts)(np.array([list("abc"), list("ccb")], object))
    assert found.tolist() == [[1, 1, 1, 0, 0, 1], [1, 2, 0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ngram_counts": [0, 3, 2**40]}, "2-grams from 3 to 1099511627776 of a pool of 10"),
        ({"ngram_counts": [0, 4, 3]}, "2-grams from 4 to 3"),
        ({"ngram_counts": [-1, 3, 7]}, "1-grams from -1 to 3"),
        ({"ngram_counts": [0, 3, 8]}, "no whole number"),
        ({"ngram_indexes": [0, 1]}, "2 ngram_indexes for a pool of 6 n-grams"),
        ({"ngram_indexes": [0, 1, 2, 3, 4, -5]}, "-5, which is no column"),
        ({"max_skip_count": -1}, "-1 are skipped"),
        ({"min_gram_length": 0}, "of 0 to 3 items"),
        ({"mode": "IDF", "weights": [1.0]}, "1 weights for a pool of 6 n-grams"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(
    changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        gram_vectorizer(**{**WORDS, **changed})


def test_more_skips_than_a_row_has_items_end_at_once() -> None:
    found = gram_vectorizer(**{**WORDS, "max_skip_count": 2**60})(np.array([2, 0, 3]))
    assert found.tolist() == [1, 0, 1, 0, 0, 1]


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a row nor rows"):
        gram_vectorizer(**WORDS)(np.zeros((1, 2, 3), np.int64))
