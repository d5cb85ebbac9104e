"""The time at which a run is stopped, and the error that its caller gets then."""

from __future__ import annotations

from typing import NamedTuple, Unpack

from ...errors import DeadlineExceededError, Place
from ...executors import Clock

__all__ = ["Deadline"]


class Deadline(NamedTuple):
    """A time of a clock, and how many seconds before that the caller asked for it."""

    clock: Clock
    at_s: float
    given_s: float

    @property
    def has_passed(self) -> bool:
        """True from that time on."""
        return self.clock.now_s() >= self.at_s

    def error(
        self, what: str, while_: str, *, stage: str, request_id: int | None, **place: Unpack[Place]
    ) -> DeadlineExceededError:
        """Make the error for a run, ``what``, that the deadline finds where ``while_`` says."""
        elapsed_s = self.clock.now_s() - self.at_s + self.given_s
        return DeadlineExceededError(
            f"{what} did not finish before its deadline of {self.given_s:g} s; after "
            f"{elapsed_s:.3g} s it was {while_}",
            deadline_s=self.given_s,
            elapsed_s=elapsed_s,
            stage=stage,
            request_id=request_id,
            **place,
        )
