"""What the stress test draws follows from its seed alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stress import closing_client, stream_plan
from stress.client import Client


def drawn(seed: int, number: int, part: str) -> list[Any]:
    """Draw as a part of a client does; a plant is asked for its seed only."""
    plant: Any = SimpleNamespace(seed=seed)
    chance = Client(plant, number).chance_of(part)
    plans: list[Any] = [stream_plan.draw_plan(chance, [0, 1, 2]) for _ in range(9)]
    return [*plans, *(closing_client.draw_plan(chance, ["MOCK.0", "INLINE"]) for _ in range(9))]


def test_a_seed_draws_the_same_again_and_each_part_something_else() -> None:
    assert drawn(7, 5, "task 2") == drawn(7, 5, "task 2")
    others = [drawn(8, 5, "task 2"), drawn(7, 6, "task 2"), drawn(7, 5, "task 3")]
    assert drawn(7, 5, "task 2") not in others
