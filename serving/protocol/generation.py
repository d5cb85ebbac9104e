"""Generations: runs of one request, each fed by the outputs of the one before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import PropertyError, nearest

__all__ = ["Generation", "check_generation", "next_inputs"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Generation:
    """How a model generates: what each step hands to the next, and when the last one was.

    ``feed``: by output, the input of the next step that it becomes. ``step_count``: of one
    generation, at most. ``ends``: by output, the value that ends it when all elements have it.
    """

    feed: Mapping[str, str]
    step_count: int
    ends: Mapping[str, float] = field(default_factory=dict)

    def is_end(self, results: Mapping[str, Any]) -> bool:
        """Return whether a step's outputs say that it was the last."""
        return any(
            bool(np.all(np.asarray(results[name]) == value)) for name, value in self.ends.items()
        )


def next_inputs(
    generation: Generation, given: Mapping[str, Array], results: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the inputs of the next step: those of this one, but for what is fed."""
    fed = {name: np.asarray(results[output]) for output, name in generation.feed.items()}
    return {**given, **fed}


def check_generation(
    generation: Generation, inputs: Sequence[str], outputs: Sequence[str], model: str
) -> None:
    """Raise PropertyError for names that the model does not have, and for no steps."""
    if generation.step_count < 1:
        raise PropertyError(
            f"model {model!r} generates {generation.step_count} steps; give 1 or more", "generate"
        )
    for names, known, kind in (
        ((*generation.feed, *generation.ends), outputs, "output"),
        (generation.feed.values(), inputs, "input"),
    ):
        for name in names:
            if name not in known:
                raise PropertyError(
                    f"model {model!r} generates with {kind} {name!r}, which it does not have"
                    f"{nearest(name, known)}",
                    "generate",
                )
