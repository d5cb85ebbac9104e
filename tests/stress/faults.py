"""What goes wrong in the stress test: failures that are planted, at random."""

from __future__ import annotations

import random
from itertools import count

FAULT_RATE = 0.02
LOSS_RATE = 0.0005
LOST_STAGES = 20


class StageError(Exception):
    """Planted: a stage's function has raised."""


class PlantedDeviceError(Exception):
    """Planted: the device has failed at a stage's work."""


class AbruptError(BaseException):
    """Planted: a stage has raised what is no Exception."""


_numbers = count()
"""Each planted error has a text of its own: it is known again by that."""

PLANTED = (StageError, PlantedDeviceError, AbruptError)


class RandomFault:
    """One stage in fifty fails, and now and then the device is lost for the next twenty."""

    def __init__(self, kinds: tuple[type[BaseException], ...], chance: random.Random) -> None:
        self._kinds, self._chance = kinds, chance
        self._lost_count = 0

    def __call__(self, stage: str) -> BaseException | None:
        number = self._chance.random()
        if self._lost_count > 0:
            self._lost_count -= 1
        elif number < LOSS_RATE:
            self._lost_count = LOST_STAGES
        elif number > FAULT_RATE:
            return None
        text = f"planted in stage {stage!r}, number {next(_numbers)}"
        return self._chance.choice(self._kinds)(text)
