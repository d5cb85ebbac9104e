"""Index expressions, computed in Python as a kernel would."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aioinfer.backends.accelerator.elementwise.operand_walk import (
    broadcast_strides,
    index_code,
    plan_walk,
)
from aioinfer.errors import GraphError
from aioinfer.runtime.lowering.strides import row_major


@pytest.mark.parametrize(("given", "shape"), [((1,), ()), ((1, 1), (3,)), ((1, 1, 1), (2, 3))])
def test_one_element_may_have_more_axes(given, shape) -> None:
    assert broadcast_strides(given, shape) == (0,) * len(shape)


def indices(shape, strides) -> list[list[int]]:
    """Run the generated lines for every element; C's int arithmetic is Python's here."""
    code = index_code(plan_walk(shape, strides), "i")
    found = []
    for number in range(int(np.prod(shape))):
        scope = {"i": number, **dict(code.parameters)}
        for line in code.lines:
            for part in line.replace("const int ", "").replace("int ", "").split(";"):
                exec(part.strip().replace("/=", "//="), {}, scope)
        found.append([eval(text, {}, scope) for text in code.expressions])
    return found


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (3, 1, 4), (2, 3, 4)])
def test_all_broadcasts_of_a_shape(shape) -> None:
    choices = itertools.product(*[(1, length) for length in shape])
    for given in dict.fromkeys(choices):
        wanted = np.broadcast_to(np.arange(np.prod(given)).reshape(given), shape).reshape(-1)
        found = indices(shape, [broadcast_strides(given, shape)])
        assert [index for (index,) in found] == wanted.tolist()


def test_a_permutation_and_a_dense_target() -> None:
    strides = row_major((2, 3, 4))
    found = indices((4, 2, 3), [[strides[axis] for axis in (2, 0, 1)], row_major((4, 2, 3))])
    wanted = np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).reshape(-1)
    assert found == [[index, number] for number, index in enumerate(wanted.tolist())]


def test_axes_that_all_step_through_alike_are_one() -> None:
    walk = plan_walk((2, 3, 4), [row_major((2, 3, 4)), (0, 0, 1)])
    assert (walk.lengths, walk.strides) == ((6, 4), ((4, 1), (0, 1)))


def test_equal_patterns_have_equal_text() -> None:
    texts = [
        index_code(plan_walk(shape, [broadcast_strides(shape[1:], shape)]), "i").lines
        for shape in ((2, 3), (40, 50))
    ]
    assert texts[0] == texts[1]


def test_what_does_not_broadcast_is_refused() -> None:
    with pytest.raises(GraphError, match=r"shape \[3\] does not broadcast to \[2, 4\]"):
        broadcast_strides((3,), (2, 4))
