"""Tuning: the plans that a library has for one operation compete on its device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..autotune import Choice, Timing, UselessError, choose, measure
from .planned import Planned

__all__ = ["OperationBuffers", "PlanTimer", "TimerMaker", "tune"]

_log = logging.getLogger("aioinfer")


@dataclass(frozen=True)
class OperationBuffers:
    """The memory that runs of an operation take, whichever of its plans it is.

    ``shapes`` has the arguments but for the workspace, by name and in their order; elements are of
    ``dtype``, "float32", "float16" or "bfloat16", and lie densely. A run writes all of ``output``.
    ``workspace_bytes`` is enough for every plan. ``summary`` is for people.
    """

    summary: str
    dtype: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    output: str
    workspace_bytes: int


class PlanTimer(Protocol):
    """Measures plans of one operation on its device, by their place among those it was given."""

    def glance(self, index: int) -> Timing:
        """Run it a few times."""

    def gaze(self, index: int) -> Timing:
        """Run it often, as a launch graph that is replayed."""


TimerMaker = Callable[[OperationBuffers, Sequence[Planned]], AbstractContextManager[PlanTimer]]


def tune(buffers: OperationBuffers, planned: Sequence[Planned], timer: TimerMaker | None) -> Choice:
    """Choose one of the plans, the recommended one first, by timing them. Blocks.

    It is the first one, and not final, if there is no timer or timing fails for another reason
    than a plan; a single one is taken as it is. The device is the thread's current one. Raises
    UselessError if no plan works.
    """
    if timer is None or len(planned) == 1:
        return Choice(0, is_final=timer is not None)
    try:
        with timer(buffers, planned) as opened:
            return choose(measure(len(planned), opened.glance, opened.gaze))
    except UselessError:
        raise
    except Exception as error:  # memory is short, or the driver refuses: it works untimed
        _log.warning(
            "the first plan is used untimed for %s, because they cannot be timed: %s",
            buffers.summary,
            error,
        )
        return Choice(0, is_final=False)
