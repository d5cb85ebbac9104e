"""Pools, folded columns, regions and points of images.

native_pools.c, native_columns.c, native_regions.c, native_cells.c and native_samples.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .reach import FLOAT32, INDEX_TYPES, MOST_BYTES, Reach, Rule, element_type, product, take

__all__ = ["RULES"]

_MOST_SAMPLED = 1 << 29
"""Elements of an image, of which twice as many have a number of 32 bits."""


def _align_regions(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, regions, rows, columns, *_ = take(parameters, 11)
    if rows < 1 or columns < 1:
        raise ValueError(f"regions of {rows} by {columns} bins")
    return [
        (0, product(images, channels, height, width, 4), FLOAT32),
        (0, product(regions, 4, 4), FLOAT32),
        (0, product(regions, 8), INDEX_TYPES[8]),
        (0, product(regions, channels, rows, columns, 4), FLOAT32),
    ]


def _pool_regions(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, regions, rows, columns, _ = take(parameters, 8)
    if rows < 1 or columns < 1:
        raise ValueError(f"regions of {rows} by {columns} cells")
    return [
        (0, product(images, channels, height, width, 4), FLOAT32),
        (0, product(regions, 5, 4), FLOAT32),
        (0, product(regions, channels, rows, columns, 4), FLOAT32),
    ]


def _sample_points(parameters: Sequence[int]) -> list[Reach]:
    images, channels, points, axes, form, padding, _, *lengths = take(parameters, 10)
    if not 1 <= axes <= len(lengths) or form not in (0, 1, 2) or padding not in (0, 1, 2):
        raise ValueError(f"points of {axes} axes of form {form} and padding {padding}")
    plane = product(*lengths[:axes])
    if plane > _MOST_SAMPLED:
        raise ValueError(f"points between {plane} elements")
    return [
        (0, product(images, channels, plane, 4), FLOAT32),
        (0, product(images, points, axes, 4), FLOAT32),
        (0, product(images, channels, points, 4), FLOAT32),
    ]


def _fold_columns(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, *axes = take(parameters, 14)
    windows = []
    for length, places, stride, dilation, pad in (axes[:5], axes[5:]):
        if stride < 1 or abs(pad) >= MOST_BYTES:
            raise ValueError(f"windows every {stride} places, {pad} of them cut off")
        product(places, dilation)
        windows += [length, places]
    return [
        (0, product(images, channels, *windows, 4), FLOAT32),
        (0, product(images, channels, height, width, 4), FLOAT32),
    ]


def _pool(parameters: Sequence[int]) -> list[Reach]:
    kind, element, item, outer, inner, *words = take(parameters, 23)
    known, dtypes = element_type(element)
    if kind not in (0, 1) or known != item or inner < 1:
        raise ValueError(f"a pool of kind {kind} over {inner} elements of {item} bytes")
    axes = list(_pool_axes(words))
    source = product(outer, inner, item, *(length for length, _ in axes))
    result = product(outer, inner, item, *(count for _, count in axes))
    reads: list[Reach] = [(0, source, dtypes)]
    if kind:
        reads.append((0, 4 * sum(count for _, count in axes), FLOAT32))
    return [*reads, (0, result, dtypes)]


def _pool_axes(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    for start in range(0, len(words), 6):
        length, count, size, stride, dilation, pad = words[start : start + 6]
        if min(size, stride, dilation) < 1 or pad < 0:
            raise ValueError(
                f"a window of {size} elements, stride {stride}, dilation {dilation}, pad {pad}"
            )
        product(count, stride)
        product(8, size, dilation)
        product(pad)
        yield length, count


RULES: Mapping[str, Rule] = {
    "align_regions": _align_regions,
    "fold_columns": _fold_columns,
    "pool": _pool,
    "pool_regions": _pool_regions,
    "sample_points": _sample_points,
}
