"""Memory and threads, tried out before they are asked for by code that cannot do without.

oneDNN checks most of its allocations, and not all; libgomp ends the process if a thread cannot be
started, or a small piece of memory had. So as much memory as they will need is mapped first and
given back untouched, and as many threads are started and ended: if that fails it is an error like
any other. Others may be quicker to take what was there; a process that runs out of all that it may
have can only be made unlikely to end.
"""

from __future__ import annotations

import threading

from ....executors.shortage import check_memory, start_thread

__all__ = ["COMPILE_BYTES", "check_threads", "forget_threads"]

COMPILE_BYTES = 16 << 20  # what making a primitive takes at most, for those that were measured
THREAD_BYTES = 1 << 20  # of what a team of threads is described by, beside their stacks


class _Thread(threading.local):
    """How many threads a team of this thread has been tried with."""

    most = 1


_thread = _Thread()


def check_threads(count: int) -> None:
    """Raise DeviceError or MemoryError if this thread's team cannot have ``count`` threads.

    To be called before the first team of this size; costs nothing after that.
    """
    if count <= _thread.most:
        return
    check_memory(THREAD_BYTES * count)
    is_over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for number in range(count - 1):  # all at once, as a team has them
            thread = threading.Thread(
                target=is_over.wait, name=f"aioinfer.try.{number}", daemon=True
            )
            start_thread(thread)
            started.append(thread)
    finally:
        is_over.set()
        for thread in started:
            thread.join()
    _thread.most = count


def forget_threads(count: int) -> None:
    """Have this thread's teams of more threads tried again: the others may have ended."""
    _thread.most = min(_thread.most, count)
