from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.operators.own.own_maps import map_to_tensor, map_to_vector, tensor_to_maps

SCORES = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)


def test_each_row_becomes_a_map() -> None:
    assert tensor_to_maps(SCORES, classlabels_int64s=[3, 5]) == [{3: 0.25, 5: 0.75}, {3: 1.0, 5: 0}]
    assert tensor_to_maps(SCORES[0], classlabels_strings=["a", "b"]) == [{"a": 0.25, "b": 0.75}]


@pytest.mark.parametrize(
    "labels", [{}, {"classlabels_int64s": [1]}, {"classlabels_strings": "abc"}]
)
def test_labels_that_are_no_columns_are_refused(labels: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="labels are no columns"):
        tensor_to_maps(SCORES, **labels)


def test_two_kinds_of_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        tensor_to_maps(SCORES, classlabels_int64s=[1, 2], classlabels_strings=["a", "b"])


def test_a_map_becomes_a_vector_over_a_vocabulary() -> None:
    found = map_to_vector({"c": 2.0}, string_vocabulary=["a", "c"])
    assert (found.tolist(), found.dtype) == ([[0.0, 2.0]], np.float32)
    counted = map_to_vector({7: 3}, int64_vocabulary=[5, 7])
    assert (counted.tolist(), counted.dtype) == ([[0, 3]], np.int64)
    assert map_to_vector({7: "x"}, int64_vocabulary=[5, 7]).tolist() == [["", "x"]]
    assert map_to_vector({}, int64_vocabulary=[5, 7]).tolist() == [[0.0, 0.0]]
    with pytest.raises(ValueError, match=r"lacks \['z'\]"):
        map_to_vector({"z": 1.0}, string_vocabulary=["a"])


def test_a_map_becomes_a_tensor_by_its_keys() -> None:
    assert map_to_tensor({4: 1.5, 1: 0.5}).tolist() == [[0.5, 1.5]]
    sparse = map_to_tensor({2: 1.5}, map_form="SPARSE", max_map=4, cast_to="TO_INT64")
    assert (sparse.tolist(), sparse.dtype) == ([[0, 0, 1, 0]], np.int64)
    assert map_to_tensor({0: "a"}, cast_to="TO_STRING").tolist() == [["a"]]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"cast_to": "TO_MARS"}, "cannot be cast TO_MARS"),
        ({"map_form": "ODD"}, "in the form ODD"),
        ({"map_form": "SPARSE", "max_map": 2}, r"\[4\] are not below max_map, 2"),
    ],
)
def test_odd_casts_are_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        map_to_tensor({4: 1.0}, **attributes)
