"""When a run is to be over, by the clock of its network, and waiting no longer than that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import Place, PropertyError, placed
from ...executors import Clock, TimerHandle
from ..loops.completion import until
from ..runs.deadline import Deadline

if TYPE_CHECKING:
    from ..runs.run import Run
    from .running_network import RunningNetwork

__all__ = ["check_timeout", "deadline_from_now", "deadline_of", "ended_or_late"]


def check_timeout(timeout_s: float | None, where: Place) -> None:
    """Raise PropertyError for what is no time to wait; None is for ever."""
    try:
        is_time = timeout_s is None or timeout_s >= 0
    except TypeError:
        is_time = False
    if not is_time:
        with placed(**where):
            raise PropertyError(
                f"timeout_s is {timeout_s!r}; give seconds, 0 or more, or None for ever",
                "timeout_s",
                value=timeout_s,
            )


def deadline_from_now(clock: Clock, deadline_s: float, where: Place) -> Deadline:
    """Return the deadline that lies ``deadline_s`` seconds from now; infinity never comes.

    Raises PropertyError for what is no time; ``where`` is for that.
    """
    try:
        at_s = float(clock.now_s() + deadline_s)
    except (TypeError, ValueError, OverflowError):
        at_s = math.nan
    if math.isnan(at_s):
        with placed(**where):
            raise PropertyError(
                f"deadline_s is {deadline_s!r}; give seconds from now, infinity for no deadline, "
                f"or None for what DEFAULT_DEADLINE_S says",
                "deadline_s",
                value=deadline_s,
            )
    return Deadline(clock, at_s, float(deadline_s))


def deadline_of(network: RunningNetwork, deadline_s: float | None) -> Deadline | None:
    """Return the deadline of what is started on a network now; None: what DEFAULT_DEADLINE_S says.

    Raises PropertyError for what is no time.
    """
    if deadline_s is None:
        deadline_s = network.default_deadline_s
    if deadline_s is None:
        return None
    where: Place = {"network": network.name, "device": network.device}
    return deadline_from_now(network.clock, deadline_s, where)


async def ended_or_late(run: Run, deadline: Deadline | None) -> None:
    """Suspend until the run has ended or, if there is a deadline, until that has passed."""
    alarm: TimerHandle | None = None
    wakes: list[Callable[[], None]] = []

    def register(wake: Callable[[], None]) -> None:
        nonlocal alarm
        wakes.append(wake)
        run.when_ended(wake)
        if deadline is not None:
            alarm = deadline.clock.call_at(deadline.at_s, wake)

    try:
        await until(register, lambda: None)
    finally:
        for wake in wakes:
            run.forget_ended(wake)
        if alarm is not None:
            alarm.cancel()
