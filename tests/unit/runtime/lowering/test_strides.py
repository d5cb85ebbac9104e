"""Strides of dense tensors against numpy's."""

import numpy as np
import pytest

from aioinfer.runtime.lowering.strides import row_major


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (4, 1, 5, 2)])
def test_strides_are_numpys(shape: tuple[int, ...]) -> None:
    assert row_major(shape) == np.zeros(shape, np.int8).strides


def test_an_axis_without_elements_counts_as_one() -> None:
    assert row_major((2, 0, 3)) == (3, 3, 1)
