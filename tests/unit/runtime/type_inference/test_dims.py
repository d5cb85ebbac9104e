"""Arithmetic of lengths, among them symbols and open ones."""

import pytest

from aioinfer.runtime.graph import Dim, Shape
from aioinfer.runtime.type_inference import ContradictionError, dims

BROADCASTS: list[tuple[list[Shape], Shape | None]] = [
    ([], ()),
    ([(), ()], ()),
    ([(3,), ()], (3,)),
    ([(2, 1), (3,)], (2, 3)),
    ([(3,), (2, 1), (4, 1, 1)], (4, 2, 3)),
    ([(2,), (3,)], None),
    ([(0,), (1,)], (0,)),
    ([(0,), (2,)], None),
    ([("n", 1), (1, "n")], ("n", "n")),
    ([("n",), ("n",)], ("n",)),
    ([("n",), ("m",)], (None,)),
    ([("n",), (None,)], (None,)),
    ([(None,), (None,)], (None,)),
    ([(1,), (None,)], (None,)),
    ([(5,), (None,)], (5,)),
    ([("n",), (5,)], (5,)),
    ([("n",), ("m",), (5,)], (5,)),
    ([("n",), (5,), (4,)], None),
]


@pytest.mark.parametrize(("shapes", "expected"), BROADCASTS)
def test_shapes_broadcast_as_numpy_does_and_symbols_give_way_to_lengths(
    shapes: list[Shape], expected: Shape | None
) -> None:
    for ordered in (shapes, shapes[::-1]):
        if expected is None:
            with pytest.raises(ContradictionError, match="do not broadcast"):
                dims.broadcast(ordered)
        else:
            assert dims.broadcast(ordered) == expected


@pytest.mark.parametrize(
    ("axis", "rank", "expected"),
    [(0, 1, 0), (-1, 3, 2), (-3, 3, 0)],
)
def test_axes_count_from_the_front_or_the_back(axis: object, rank: int, expected: int) -> None:
    assert dims.axis_of(axis, rank) == expected


@pytest.mark.parametrize(("axis", "rank"), [(3, 3), (-4, 3), (0, 0), ("0", 1)])
def test_an_axis_that_is_not_there_is_refused(axis: object, rank: int) -> None:
    with pytest.raises(ContradictionError, match=f"names axis {axis!r}, .* {rank} axes"):
        dims.axis_of(axis, rank)


def test_axes_must_be_there_and_differ() -> None:
    assert dims.axes_of([2, -3], 3) == [2, 0]
    assert dims.axes_of([], 0) == []
    for axes in ([0, -3], [3]):
        with pytest.raises(ContradictionError, match=f"axis {axes[-1]}"):
            dims.axes_of(axes, 3)


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((), 1),
        ((2, 3), 6),
        (("n", 1), "n"),
        (("n", 2), None),
        (("n", "n"), None),
        (("n", 0), 0),
        ((None, 0), 0),
        ((None, 1), None),
    ],
)
def test_a_product_is_known_or_a_symbol_or_open(factors: Shape, expected: Dim) -> None:
    assert dims.product(factors) == expected


@pytest.mark.parametrize(
    ("summands", "expected"),
    [((), 0), ((2, -1), 1), (("n", 0), "n"), (("n", 1), None), (("n", "n"), None), ((None,), None)],
)
def test_a_sum_is_known_or_a_symbol_or_open(summands: Shape, expected: Dim) -> None:
    assert dims.total(summands) == expected


def test_quotients() -> None:
    assert [dims.divide(dim, 2) for dim in (4, 5, "n", None)] == [2, 2, None, None]
    assert [dims.divide(dim, 1) for dim in (4, "n", None)] == [4, "n", None]
    assert [dims.ceil_divide(count, 2) for count in (4, 5, -5)] == [2, 3, -2]
    assert dims.ceil_divide(5, -2) == -2


def test_what_is_known_of_one_shape_is_joined() -> None:
    assert dims.merge(("n", None, 3), (2, "m", 3)) == (2, "m", 3)
    assert dims.merge((2, "m", 3), ("n", None, 3)) == (2, "m", 3)
    assert dims.merge(("n",), ("m",)) == ("n",)
    for other in ((3,), (2, 3)):
        with pytest.raises(ContradictionError, match=r"\[2\] and .* have to be the same"):
            dims.merge((2,), other)


def test_lengths_at_axes_are_replaced() -> None:
    assert dims.with_dims((1, 2, 3), [2, 0], ["n", None]) == (None, 2, "n")
