"""What a Resize makes of lengths."""

import numpy as np
import pytest

from aioinfer.runtime.graph import Shape
from aioinfer.runtime.type_inference import ContradictionError
from aioinfer.runtime.type_inference.families.resized_lengths import (
    resized_by_scales,
    resized_to_sizes,
)


def test_scaled_lengths_are_rounded_down() -> None:
    assert resized_by_scales((3, 5, 7), [0.6, 2.0, 1.5]) == (1, 10, 10)
    assert resized_by_scales(("n", "n", None), [1.0, 2.0, 1.0]) == ("n", None, None)


def test_scales_multiply_in_float32() -> None:
    scale = float(np.float32(0.7))
    assert 10 * scale < 7
    assert resized_by_scales((10,), [scale]) == (7,)


@pytest.mark.parametrize("scale", [3e38, 1e30, float("inf"), float("nan"), 0.0, -2.0])
def test_a_scale_that_makes_no_length_is_refused(scale: float) -> None:
    with pytest.raises(ContradictionError, match=r"finite|times as long"):
        resized_by_scales((4, 4), [1.0, scale])


@pytest.mark.parametrize(("length", "size"), [(4, -1), (4, 0), (0, 4)])
def test_a_size_that_is_no_length_is_refused(length: int, size: int) -> None:
    with pytest.raises(ContradictionError, match=str(size)):
        resized_to_sizes((4, length), (4, size), "stretch")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("stretch", (7, 8)), ("not_larger", (7, 4)), ("not_smaller", (16, 8))],
)
def test_sizes_may_keep_the_proportions(policy: str, expected: Shape) -> None:
    assert resized_to_sizes((4, 2), (7, 8), policy) == expected


def test_a_policy_that_onnx_lacks_is_refused() -> None:
    with pytest.raises(ContradictionError, match="'sideways'"):
        resized_to_sizes((4, 2), (7, 8), "sideways")


def test_proportions_of_open_lengths_leave_all_open() -> None:
    assert resized_to_sizes(("n", 2), (7, 8), "not_larger") == (None, None)
    assert resized_to_sizes((4, 2), ("n", 8), "not_smaller") == (None, None)
    assert resized_to_sizes(("n", 2), ("m", 8), "stretch") == ("m", 8)
