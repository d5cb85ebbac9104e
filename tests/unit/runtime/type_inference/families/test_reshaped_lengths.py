"""What a Reshape makes of the lengths of its data and of its target."""

import pytest

from aioinfer.runtime.graph import Shape
from aioinfer.runtime.type_inference import ContradictionError
from aioinfer.runtime.type_inference.families.reshaped_lengths import reshaped

CASES: list[tuple[Shape, Shape, Shape]] = [
    ((2, 6), (3, 4), (3, 4)),
    ((2, 6), (-1,), (12,)),
    ((2, 6), (0, -1, 3), (2, 2, 3)),
    ((), (1, 1), (1, 1)),
    ((1,), (), ()),
    ((0, 3), (3, -1), (3, 0)),
    (("n", 128), (0, 4, 32), ("n", 4, 32)),
    (("n", 128), (-1, 4, 32), ("n", 4, 32)),
    (("n", 128), (-1, 64), (None, 64)),
    (("n", "s", 12, 64), (0, 0, -1), ("n", "s", 768)),
    (("n", "s", 12, 64), ("n", "s", -1), ("n", "s", 768)),
    (("n", "s", 12, 64), ("n", -1, 768), ("n", "s", 768)),
    ((None, None, 12, 64), (0, 0, 768), (None, None, 768)),
    ((None, None, 12, 64), (0, 0, -1), (None, None, 768)),
    ((None, 4), (-1, 4), (None, 4)),
    (("n", 4), (None, 4), ("n", 4)),
    ((6, 4), (None, 4), (6, 4)),
    ((6, 4), (None, None), (None, None)),
    ((6, 4), (None, -1), (None, None)),
    (("n", 4), ("m", -1), ("m", None)),
    (("n", 4), (3, 4), (3, 4)),
]


@pytest.mark.parametrize(("data", "target", "expected"), CASES)
def test_lengths_follow_from_data_and_target(data: Shape, target: Shape, expected: Shape) -> None:
    assert reshaped(data, target, allow_zero=False) == expected


REFUSED: list[tuple[Shape, Shape]] = [
    ((2, 6), (5, -1)),
    ((2, 6), (5, 2)),
    ((2, 6), (-1, -1)),
    ((2, 6), (-2, 6)),
    ((2, 6), (1, 2, 0)),
    ((0, 3), (0, -1)),
    ((6, 4), (0, None, 5)),
]


@pytest.mark.parametrize(("data", "target"), REFUSED)
def test_a_target_that_data_cannot_have_is_refused(data: Shape, target: Shape) -> None:
    with pytest.raises(ContradictionError, match="cannot become"):
        reshaped(data, target, allow_zero=False)


def test_a_copied_length_of_zero_leaves_nothing_to_count() -> None:
    assert reshaped((0, 2), (0,), allow_zero=False) == (0,)
    assert reshaped((0, 2), (0, 3), allow_zero=False) == (0, 3)


def test_a_zero_may_be_a_length() -> None:
    assert reshaped((0, 3), (3, 0), allow_zero=True) == (3, 0)
    assert reshaped((0, 3), (0, None), allow_zero=True) == (0, None)
    for data, target in (((2, 3), (0, 3)), ((0, 3), (0, -1))):
        with pytest.raises(ContradictionError, match="cannot become"):
            reshaped(data, target, allow_zero=True)
