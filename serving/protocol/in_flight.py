"""How much of the memory that bodies may take together is taken. Pure."""

from __future__ import annotations

from types import TracebackType

from .refusal import RefusedError

__all__ = ["BodiesInFlight", "BodyShare"]

_RETRY_AFTER_S = 1


class BodiesInFlight:
    """Counts the bytes of all bodies that are in memory, whichever wire they came by.

    Used on one event loop.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.taken_bytes = 0

    def share(self) -> BodyShare:
        """Return what one body takes: a context that gives it back at its end."""
        return BodyShare(self)

    def refuse_beyond(self, size: int) -> None:
        """Raise RefusedError with 503 if these bytes do not fit beside the others now."""
        if self.taken_bytes + size > self._limit_bytes:
            raise RefusedError(
                f"the bodies of other requests fill the {self._limit_bytes} bytes for them",
                status=503,
                retry_after_s=_RETRY_AFTER_S,
            )

    def __repr__(self) -> str:
        return f"<BodiesInFlight {self.taken_bytes} of {self._limit_bytes} bytes>"


class BodyShare:
    """The part of one body in the memory for all, from its first byte until its request ends."""

    def __init__(self, bodies: BodiesInFlight) -> None:
        self._bodies, self._taken_bytes = bodies, 0

    def expect(self, size: int) -> None:
        """Raise RefusedError if a body of this size does not fit now; takes nothing yet.

        A length that is only declared takes nothing, else lies would keep others out.
        """
        self._bodies.refuse_beyond(size)

    def take(self, size: int) -> None:
        """Take bytes that have come. Raises RefusedError, and takes none, if they do not fit."""
        self._bodies.refuse_beyond(size)
        self._bodies.taken_bytes += size
        self._taken_bytes += size

    def __enter__(self) -> BodyShare:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bodies.taken_bytes -= self._taken_bytes
        self._taken_bytes = 0
