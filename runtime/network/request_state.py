"""The states of an InferRequest and the moves between them, as a table.

A cancel or a deadline answers the caller at once (``cancelled``); the request is free again only
when the device has finished (``idle``).
"""

from __future__ import annotations

from typing import Literal

from ...errors import RequestBusyError, RequestStateError

__all__ = ["MOVES", "Event", "State", "move"]

State = Literal["idle", "busy", "cancelled"]
Event = Literal["start", "access", "finish", "cancel"]

MOVES: dict[tuple[State, Event], State] = {
    ("idle", "start"): "busy",
    ("idle", "access"): "idle",  # tensors, callback, profiling
    ("idle", "cancel"): "idle",  # nothing to cancel, and no error
    ("busy", "finish"): "idle",
    ("busy", "cancel"): "cancelled",  # the caller is answered now; a deadline is the same move
    ("cancelled", "cancel"): "cancelled",  # twice is fine
    ("cancelled", "finish"): "idle",  # only now is the device done and the slot free
}


def move(state: State, event: Event, request: str = "the request") -> State:
    """Return the next state; raises the error of the state for a move that is not in the table."""
    following = MOVES.get((state, event))
    if following is not None:
        return following
    allowed = [known for known_state, known in MOVES if known_state == state]
    if state == "idle":
        raise RequestStateError(
            f"cannot {event} {request}: it is idle; allowed now: {allowed}", state=state
        )
    doing = "still runs" if state == "busy" else "is cancelled, but its device is not done yet"
    raise RequestBusyError(
        f"cannot {event} {request}: it {doing}; wait() or `await wait_async()` first, or use "
        f"another request; allowed now: {allowed}",
        state=state,
    )
