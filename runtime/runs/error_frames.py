"""What an error keeps alive by its traceback: emptied, so that a run and its error part."""

from __future__ import annotations

from contextlib import suppress
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from traceback import walk_tb

__all__ = ["empty_own_frames"]

_PACKAGE = __name__.partition(".")[0]
_MAY_BE_SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def empty_own_frames(error: BaseException) -> None:
    """Drop the local variables of this package's frames in the traceback; frames of users stay.

    The lines that it shows stay, too. Frames that still run are left alone, and so are those of
    generators and coroutines: a caller that has the error already may wait in one, which clearing
    its frame would end (before Python 3.13).
    """
    for frame, _line in walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        is_ours = name.partition(".")[0] == _PACKAGE
        if is_ours and not frame.f_code.co_flags & _MAY_BE_SUSPENDED:
            with suppress(RuntimeError):
                frame.clear()
