"""What all users of the stress test have in common: what they draw, check and note."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
    TensorError,
)
from stress.faults import PLANTED
from stress.networks import Target
from stress.plant import Plant

WAIT_S = 30.0  # a bound for what must happen; never slept through
DEADLINES_S = (None, None, None, None, 3600.0, 0.02, 0.002, 0.0)
INPUTS = [np.full((1 + number % 3, 3), number - 4, np.float32) for number in range(9)]
ERRORS = (aioinfer.errors.AioInferError, *PLANTED)


def outcome_of(error: BaseException | None) -> str:
    """Name the outcome as the statistics do; raises what the test has not planted.

    ``closed`` may be a run that was aborted, or one that came too late.
    """
    if error is None:
        return "finished"
    if isinstance(error, PLANTED):
        return "failed"
    for kind, outcome in (
        (RequestCancelledError, "cancelled"),
        (DeadlineExceededError, "expired"),
        (OverloadedError, "refused"),
        (ClosedError, "closed"),
        (TensorError, "unfit"),
    ):
        if isinstance(error, kind):
            return outcome
    raise error


def check(target: Target, x: np.ndarray, outputs: dict[str, Any]) -> None:
    assert np.array_equal(outputs["y"], target.expected(x)), (target.network, x, outputs)


@dataclass(frozen=True)
class Case:
    """One run that a client makes: of which network, with what, and within which limits."""

    index: int
    target: Target
    x: np.ndarray
    limits: dict[str, Any]

    def check(self, outputs: dict[str, Any]) -> None:
        check(self.target, self.x, outputs)


class Client:
    """One user; ``seen`` counts (index of the network, outcome).

    ``unknown`` is the outcome of a run whose task was cancelled: it is told nothing.
    """

    def __init__(self, plant: Plant, number: int) -> None:
        self.plant, self.number = plant, number
        self.chance = self.chance_of("main")
        self.started: Counter[int] = Counter()
        """Runs that a network has let in or has refused, by its index."""
        self.again: Counter[int] = Counter()
        """Of those, the ones for an input that was refused before."""
        self.seen: Counter[tuple[int, str]] = Counter()
        self.left_tasks: list[str] = []
        """Tasks on its loop that have not ended with it."""
        self.extra_count = 0
        """How many runs it has made that were not taken from the plant."""

    def run(self) -> None:
        """Use the networks until no runs are left; called on a thread of its own."""
        raise AssertionError("each kind of client runs in its own way")

    def check_end(self) -> None:
        """Look at what only this client knows, when all are done."""
        assert self.left_tasks == []

    def chance_of(self, part: object) -> random.Random:
        """Give a part of this client what it draws from, whatever the others do meanwhile."""
        return random.Random(f"{self.plant.seed} {self.number} {part}")

    def draw(self, chance: random.Random) -> Case:
        """Draw one of the common networks, an input for it, a deadline and a priority."""
        index = chance.randrange(self.plant.common_count)
        return self.draw_for(index, chance)

    def draw_for(self, index: int, chance: random.Random) -> Case:
        """Draw an input for this network, a deadline and a priority."""
        limits = {
            "deadline_s": chance.choice(DEADLINES_S),
            "priority": chance.randrange(-1, 3),
        }
        return Case(index, self.plant.targets[index], chance.choice(INPUTS), limits)

    def note(self, index: int, error: BaseException | None) -> None:
        self.note_outcome(index, outcome_of(error))

    def note_outcome(self, index: int, outcome: str) -> None:
        self.seen[index, outcome] += 1
        self.plant.settle()

    def own_requests(self) -> list[aioinfer.InferRequest]:
        """Make a request of each common network."""
        targets = self.plant.targets[: self.plant.common_count]
        return [target.network.create_infer_request() for target in targets]


def is_same(one: BaseException | None, other: BaseException | None) -> bool:
    """Tell whether both are of one ending: each time a run is asked, it raises a copy."""
    if one is None or other is None:
        return one is other
    return (type(one), str(one), vars(one)) == (type(other), str(other), vars(other))


async def idle(request: aioinfer.InferRequest) -> BaseException | None:
    """Wait for a run's end and give its error."""
    try:
        await request.wait_async()
    except ERRORS as error:
        return error
    return None
