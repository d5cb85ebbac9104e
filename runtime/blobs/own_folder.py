"""Folders and files that are one user's alone: a cache is believed by those who read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["has_owners", "why_not_own_file", "why_not_own_folder"]


def has_owners() -> bool:
    """Return whether files have owners here; without them all users' files are alike."""
    return hasattr(os, "getuid")


def why_not_own_folder(folder: Path) -> str | None:
    """Return why a folder is not this user's alone, mode 700 and no link; None if it is.

    Raises OSError if it is not there.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return "it is no folder"
    if not has_owners():
        return None
    if found.st_uid != os.getuid():
        return "it is not this user's folder"
    if found.st_mode & 0o077:
        return "others can get at it; its mode has to be 700"
    return None


def why_not_own_file(path: Path) -> str | None:
    """Return why a file may be written by others, or is a link; None if this user alone may.

    Raises OSError if it is not there.
    """
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        return "it is no file"
    if not has_owners():
        return None
    if found.st_uid != os.getuid():
        return "it is not this user's file"
    if found.st_mode & 0o022:
        return "others may write to it; its mode has to be 600"
    return None
