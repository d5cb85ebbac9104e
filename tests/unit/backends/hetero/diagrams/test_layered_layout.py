"""Places of boxes: layers, order and room."""

from __future__ import annotations

import random
from graphlib import CycleError

import pytest

from aioinfer.backends.hetero.diagrams.layered_layout import layered_layout

BOX = (40.0, 20.0)


def test_a_box_is_below_all_that_lead_to_it() -> None:
    layout = layered_layout([BOX] * 4, [(0, 1), (1, 3), (0, 3), (2, 3)])
    heights = [y for _, y in layout.places]
    assert heights[0] == heights[2] == 0
    assert heights[0] < heights[1] < heights[3]


def test_an_edge_goes_from_the_bottom_of_one_box_to_the_top_of_the_other() -> None:
    layout = layered_layout([BOX, BOX], [(0, 1)])
    (_, start), *_, (_, end) = layout.routes[0]
    assert start == layout.places[0][1] + BOX[1]
    assert end == layout.places[1][1]


def test_a_long_edge_goes_around_the_boxes_between() -> None:
    layout = layered_layout([BOX] * 3, [(0, 1), (1, 2), (0, 2)])
    left, top = layout.places[1]
    for x, y in layout.routes[2]:
        assert not (left <= x <= left + BOX[0] and top <= y <= top + BOX[1])


def test_neighbours_are_put_in_the_order_that_avoids_crossing() -> None:
    layout = layered_layout([BOX] * 4, [(0, 3), (1, 2)])
    is_first_left = layout.places[0][0] < layout.places[1][0]
    assert (layout.places[3][0] < layout.places[2][0]) == is_first_left


def test_boxes_of_random_graphs_never_overlap() -> None:
    for seed in range(30):
        source = random.Random(seed)
        count = source.randint(1, 25)
        sizes = [(source.uniform(10, 90), source.uniform(10, 60)) for _ in range(count)]
        pairs = [(a, b) for b in range(count) for a in range(b)]
        edges = source.sample(pairs, min(len(pairs), count))
        layout = layered_layout(sizes, edges)
        rects = [(*place, *size) for place, size in zip(layout.places, sizes, strict=True)]
        for index, (x, y, w, h) in enumerate(rects):
            assert -1e-6 <= x <= layout.width - w + 1e-6
            for other_x, other_y, other_w, other_h in rects[index + 1 :]:
                is_beside = x + w <= other_x + 1e-6 or other_x + other_w <= x + 1e-6
                assert is_beside or y + h <= other_y or other_y + other_h <= y


def test_nothing_has_no_size() -> None:
    layout = layered_layout([], [])
    assert (layout.width, layout.height) == (0, 0)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(CycleError):
        layered_layout([BOX, BOX], [(0, 1), (1, 0)])
