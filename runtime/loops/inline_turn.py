"""How long a thread has run inferences inline since an event loop on it last had its turn.

An await that never suspends starves the other tasks and delays timers. So the time of inline runs
is summed up per thread, and a task that comes when it is used up gives way to the loop first. The
more tasks do so, the shorter is what each of them gets before it is the next one's turn; one run it
gets at least.
"""

from __future__ import annotations

import threading

from ...executors.base import this_thread
from .completion import let_loop_turn

__all__ = ["ROUND_NS", "TURN_NS", "InlineTurn", "begin_turn", "threads"]

TURN_NS = 200_000
"""How long one task may go on."""
ROUND_NS = 500_000
"""How long all tasks together may, but for one run of each. A task that sleeps waits for up to
three such rounds (the rest of one, one until it is woken, one until it is called), for what of the
way there and back is not counted, and 1 ms by which asyncio rounds: it is to stay under 5 ms."""


class InlineTurn:
    """One thread's account, for the runs and tasks of that thread; made on it."""

    __slots__ = ("may_block", "most_ns", "thread", "used_ns", "waiting_count")

    def __init__(self, *, may_block: bool = False) -> None:
        self.may_block = may_block
        """True for a caller without a loop, which would only wait while others compute."""
        self.thread = this_thread()
        """What the thread knows about itself."""
        self.used_ns = 0
        """Inline work since a task last gave way."""
        self.most_ns = TURN_NS
        """A task that has run when this is used up is to give way."""
        self.waiting_count = 0
        """How many tasks have given way and are not back."""

    def share(self, waiting_count: int) -> None:
        """Note how many tasks have given way; the more they are, the less each may use."""
        self.waiting_count = waiting_count
        self.most_ns = min(TURN_NS, ROUND_NS // max(1, waiting_count))

    async def give_way(self) -> None:
        """Suspend for one round of the loop; a task that was cancelled meanwhile ends here."""
        self.share(self.waiting_count + 1)
        try:
            await let_loop_turn()
        finally:
            self.share(self.waiting_count - 1)
            self.used_ns = 0


class Threads(threading.local):
    """Makes an account, ``turn``, for each thread that asks, and one for when it may block."""

    def __init__(self) -> None:
        self.turn = InlineTurn()
        self.blocking_turn = InlineTurn(may_block=True)


threads = Threads()
"""``threads.turn`` is the account of the calling thread, ``threads.blocking_turn`` that of those of
its calls for which no loop waits."""


def begin_turn() -> None:
    """Begin the account of the calling thread anew: its event loop has just had its turn.

    For a task of one inference, as a server's are, which the loop itself has called.
    """
    threads.turn.used_ns = 0
