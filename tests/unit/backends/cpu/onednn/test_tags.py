"""Layouts by name."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.backends.cpu.onednn.tags import layout_tag

pytestmark = pytest.mark.needs_no_library


@pytest.mark.parametrize(
    ("shape", "strides", "blocks", "tag"),
    [
        ((), (), (), "scalar"),
        ((3,), (1,), (), "a"),
        ((2, 3), (3, 1), (), "ab"),
        ((2, 3), (1, 2), (), "ba"),
        ((2, 3, 5, 7), (105, 35, 7, 1), (), "abcd"),
        ((2, 3, 5, 7), (105, 1, 21, 3), (), "acdb"),
        ((1, 3, 5, 7), (105, 1, 21, 3), (), "acdb"),
        ((1, 3, 1, 1), (3, 1, 1, 1), (), "abcd"),
        ((1, 1, 1, 1), (1, 1, 1, 1), (), "abcd"),
        ((2, 3), (0, 1), (), "ba"),
        ((2, 32, 5, 7), (1120, 560, 112, 16), ((1, 16),), "aBcd16b"),
        ((32, 64, 3, 3), (9216, 2304, 768, 256), ((1, 16), (0, 16)), "ABcd16b16a"),
        ((64, 32), (1024, 64), ((0, 64), (1, 2)), "AB64a2b"),
        ((1,) * 30, (1,) * 30, (), "strided"),
    ],
)
def test_tags(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    blocks: tuple[tuple[int, int], ...],
    tag: str,
) -> None:
    assert layout_tag(shape, strides, blocks) == tag


def test_row_major_is_in_the_order_of_the_alphabet_whatever_the_shape() -> None:
    chance = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(chance.integers(1, 4, chance.integers(1, 6)))
        strides = tuple(stride // 4 for stride in np.empty(shape, np.float32).strides)
        assert layout_tag(shape, strides) == "abcdef"[: len(shape)]
