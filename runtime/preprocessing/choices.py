"""What callers choose by a member of an enum, or by its name."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from ...errors import TensorError, nearest

__all__ = ["choice_of"]

E = TypeVar("E", bound=Enum)


def choice_of(kind: type[E], given: str | E, what: str) -> E:
    """Return the member that is meant, by its name in any case; raises TensorError for none."""
    if isinstance(given, kind):
        return given
    name = given.upper() if isinstance(given, str) else ""
    if name not in kind.__members__:
        hint = nearest(name, kind.__members__)
        raise TensorError(f"{given!r} is no {what}{hint}; there are {list(kind.__members__)}")
    return kind[name]
