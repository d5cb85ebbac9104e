"""How grids of kernel C are laid out on CUDA's, whose axes end early."""

from __future__ import annotations

import random

import pytest

from aioinfer.backends.cuda.kernel_header import cuda_text, launch_grid

LONGEST = 65535


def test_a_grid_that_fits_is_launched_as_it_is() -> None:
    assert launch_grid((640,), (64,)) == ((10, 1, 1), (64, 1, 1), (0, 0))
    assert launch_grid((64, LONGEST), (64, 1)) == ((1, LONGEST, 1), (64, 1, 1), (0, 0))
    assert launch_grid((2**31 - 64,), (64,))[0] == (2**25 - 1, 1, 1)
    assert launch_grid((8, 16, 24), (8, 8, 1)) == ((1, 2, 24), (8, 8, 1), (0, 0))


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [((128, LONGEST + 1), (64, 1)), ((8, 8, 70000), (8, 8, 1)), ((2, 65537, 3), (1, 1, 1))],
)
def test_a_grid_that_is_too_long_is_numbered_along_the_first_axis(
    sizes: tuple[int, ...], groups: tuple[int, ...]
) -> None:
    counts, items, (columns, rows) = launch_grid(sizes, groups)
    wanted = [size // group for size, group in zip(sizes, groups, strict=True)]
    wanted += [1] * (3 - len(wanted))
    assert counts[1:] == (1, 1)
    assert (columns, rows) == (wanted[0], wanted[1])
    assert items == (*groups, 1, 1)[:3]
    order = random.Random(0)
    for _ in range(100):  # as the header reads blockIdx.x
        x, y, z = (order.randrange(length) for length in wanted)
        place = (z * rows + y) * columns + x
        assert place < counts[0]
        assert (place % columns, place // columns % rows, place // columns // rows) == (x, y, z)


def test_a_grid_of_more_groups_than_any_launch_is_refused() -> None:
    with pytest.raises(ValueError, match="more than a launch"):
        launch_grid((2**16, 2**16), (1, 1))


def test_every_kernel_takes_the_arguments_of_its_groups() -> None:
    text = cuda_text(
        "__kernel void first(__global float *x,\n  const int n) { } __kernel void second(void) {}"
    )
    own = "const uint group_columns, const uint group_rows)"
    assert f"first(__global float *x,\n  const int n, {own} {{ }}" in text
    assert f"second({own} {{}}" in text
