"""The cheapest cut, against all cuts of small graphs."""

from __future__ import annotations

import itertools
import random

import pytest

from aioinfer.backends.cuda.passes.minimum_cut import MinimumCut

Arcs = list[tuple[str, str, int]]


def cost(arcs: Arcs, near: set[str]) -> int:
    return sum(price for a, b, price in arcs if a in near and b not in near)


def found(arcs: Arcs) -> set[str]:
    cut = MinimumCut("s", "t")
    for arc in arcs:
        cut.add(*arc)
    return {str(point) for point in cut.near_side()}


@pytest.mark.parametrize("seed", range(60))
def test_a_cut_is_the_cheapest_and_the_smallest(seed: int) -> None:
    chance = random.Random(seed)
    inner = [f"p{number}" for number in range(chance.randint(1, 6))]
    points = ["s", "t", *inner]
    arcs = [
        (chance.choice(points), chance.choice(points), chance.randint(0, 5))
        for _ in range(chance.randint(1, 20))
    ]
    sides = [
        {"s", *chosen}
        for count in range(len(inner) + 1)
        for chosen in itertools.combinations(inner, count)
    ]
    least = min(cost(arcs, near) for near in sides)
    near = found(arcs)
    assert "t" not in near
    assert cost(arcs, near) == least
    assert all(near <= side for side in sides if cost(arcs, side) == least)


def test_nothing_is_near_the_source_without_a_way_from_it() -> None:
    assert found([("p", "q", 3), ("q", "t", 3)]) == {"s"}


def test_a_long_way_is_cut_where_it_is_cheapest() -> None:
    points = ["s", *(f"p{number}" for number in range(3000)), "t"]
    arcs = [(a, b, 5) for a, b in itertools.pairwise(points)]
    arcs[1000] = (*arcs[1000][:2], 2)
    assert len(found(arcs)) == 1001
