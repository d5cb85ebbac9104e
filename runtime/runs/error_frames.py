"""What an error keeps alive by its traceback: emptied, so that a run and its error part."""

from __future__ import annotations

from contextlib import suppress
from traceback import walk_tb

__all__ = ["empty_own_frames"]

_PACKAGE = __name__.partition(".")[0]


def empty_own_frames(error: BaseException) -> None:
    """Drop the local variables of this package's frames in the traceback; frames of users stay.

    The lines that it shows stay, too. Frames that still run are left alone.
    """
    for frame, _line in walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] == _PACKAGE:
            with suppress(RuntimeError):
                frame.clear()
