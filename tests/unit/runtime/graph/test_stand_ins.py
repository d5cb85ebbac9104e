"""Graphs that are kept to be looked at, without their weights."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Graph, TensorType, Value
from aioinfer.runtime.graph.stand_ins import RELEASED_BYTES, release_constants


def _with(array: np.ndarray) -> tuple[Graph, Value]:
    graph = Graph("g")
    return graph, graph.add_initializer(
        Value("w", TensorType(DType.of(array.dtype), array.shape), array)
    )


def test_a_large_constant_goes_and_its_type_stays() -> None:
    array = np.ones((2, RELEASED_BYTES // 8), np.float32)
    reference = weakref.ref(array)
    graph, value = _with(array)
    del array
    release_constants(graph)
    assert reference() is None
    assert value.constant is not None
    assert value.constant.shape == (2, RELEASED_BYTES // 8)
    assert value.constant.dtype == np.float32
    assert np.isnan(value.constant).all()
    assert value.constant.base is not None
    assert value.constant.base.nbytes == 4


def test_integers_become_zeros() -> None:
    graph, value = _with(np.ones(RELEASED_BYTES, np.int64))
    release_constants(graph)
    assert value.constant is not None
    assert not value.constant.any()


@pytest.mark.parametrize("dtype", [item for item in DType if item is not DType.STRING])
def test_every_element_type_has_a_stand_in(dtype: DType) -> None:
    graph, value = _with(np.ones(RELEASED_BYTES, dtype.numpy))
    release_constants(graph)
    assert value.constant is not None
    assert value.constant.dtype == dtype.numpy
    first = value.constant[0]
    assert first != first or first == 0


def test_small_constants_and_texts_stay() -> None:
    for array in (np.ones(3, np.float32), np.full(RELEASED_BYTES, "text", object)):
        graph, value = _with(array)
        release_constants(graph)
        assert value.constant is array
