"""What an error keeps alive by its traceback: emptied, so that a run and its error part."""

from __future__ import annotations

import copy
from contextlib import suppress
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from traceback import walk_tb
from types import FrameType

__all__ = ["empty_frames", "empty_own_frames", "own_error", "parting_copy"]

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
        if name.partition(".")[0] == _PACKAGE:
            _empty(frame)


def empty_frames(error: BaseException) -> None:
    """Drop the local variables of all frames but those that ``empty_own_frames`` leaves alone."""
    for frame, _line in walk_tb(error.__traceback__):
        _empty(frame)


def _empty(frame: FrameType) -> None:
    if not frame.f_code.co_flags & _MAY_BE_SUSPENDED:
        with suppress(RuntimeError):
            frame.clear()


def parting_copy(error: BaseException) -> BaseException:
    """Copy an error that is to be raised, to keep the copy: tracebacks are each one's own.

    Returns the error itself where it cannot be copied, or comes out as another one.
    """
    try:
        made = copy.copy(error)
        if type(made) is not type(error) or made.args != error.args:
            return error
    except Exception:
        return error
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    return made


def own_error(error: BaseException) -> BaseException:
    """Return an exception for one of several callers, with the common one as its cause."""
    own = parting_copy(error)
    if own is not error:
        own.__cause__ = error
    return own
