"""Texts are normalised as onnxruntime does it, and the process keeps its locale."""

from __future__ import annotations

import locale
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator

TEXTS = [
    "The",
    "the",
    "",
    "é",
    "É",
    "Straße",
    "İstanbul",
    "istanbul",
    "ﬁ",
    "ΑΣ",
    "a b",
    "\U0001f600",
]


def normalized(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    node = Node("StringNormalizer", [Value("x")], [Value("y")], attributes, name="n")
    (found,) = make_operator(node, {"": 17})(x)
    return np.asarray(found)


def by_onnxruntime(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    # Its own default is a locale that machines may not have.
    node = helper.make_node("StringNormalizer", ["x"], ["y"], locale="C.UTF-8", **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(found)


@pytest.mark.parametrize("shape", [(-1,), (1, -1)], ids=str)
@pytest.mark.parametrize("action", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("is_case_sensitive", [0, 1])
@pytest.mark.parametrize("words", [[], ["the", "É"], ["STRASSE", "İSTANBUL", "a"], TEXTS], ids=str)
def test_texts_are_those_of_onnxruntime(
    shape: tuple[int, ...], action: str, is_case_sensitive: int, words: list[str]
) -> None:
    x = np.array(TEXTS, object).reshape(shape)
    attributes: dict[str, Any] = {
        "case_change_action": action,
        "is_case_sensitive": is_case_sensitive,
    }
    if words:
        attributes["stopwords"] = words
    found, wanted = normalized(x, attributes), by_onnxruntime(x, attributes)
    assert found.dtype == object
    np.testing.assert_array_equal(found, wanted)


def test_the_locale_of_the_process_stays() -> None:
    before = locale.setlocale(locale.LC_ALL)
    normalized(np.array(["A"], object), {"locale": "C.UTF-8" if before == "C" else "C"})
    assert locale.setlocale(locale.LC_ALL) == before


@pytest.mark.parametrize("shape", [(), (2, 1), (1, 1, 1)], ids=str)
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="neither texts nor one row"):
        normalized(np.full(shape, "a", object), {})
