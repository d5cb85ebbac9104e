"""Layouts: which axis of a tensor means what, as ``NCHW``, ``N...C`` or ``[N,C,H,W]`` say it. Pure.

``?`` is an axis without a name, and ``...`` any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import TensorError

__all__ = ["Layout", "axis_order"]

_LONG_NAMES = {"BATCH": "N", "CHANNELS": "C", "DEPTH": "D", "HEIGHT": "H", "WIDTH": "W"}
_MEANINGS = {short: long.lower() for long, short in _LONG_NAMES.items()}
_REST = "..."


@dataclass(frozen=True, init=False)
class Layout:
    """The names of a tensor's axes; two with the same names are equal, case does not count."""

    names: tuple[str, ...]
    """One for each axis; "?" has no name, and "..." stands for any number of axes without one."""

    def __init__(self, text: str | Layout = _REST) -> None:
        names = text.names if isinstance(text, Layout) else _names_in(text)
        object.__setattr__(self, "names", names)

    def __str__(self) -> str:
        return f"[{','.join(self.names)}]"

    def __bool__(self) -> bool:
        """False if it says nothing."""
        return self.names != (_REST,)

    @property
    def rank(self) -> int | None:
        """How many axes a tensor has to have; None where "..." leaves that open."""
        return None if _REST in self.names else len(self.names)

    def of_rank(self, rank: int) -> tuple[str, ...]:
        """Return a name for each axis of a tensor; raises TensorError for one that does not fit."""
        if _REST not in self.names:
            if len(self.names) != rank:
                raise TensorError(
                    f"the layout {self} is for {len(self.names)} axes, and the tensor has {rank}; "
                    f"give one that names {rank}"
                )
            return self.names
        place = self.names.index(_REST)
        missing = rank - len(self.names) + 1
        if missing < 0:
            raise TensorError(f"the layout {self} is for more axes than the {rank} of the tensor")
        return self.names[:place] + ("?",) * missing + self.names[place + 1 :]

    def axis(self, name: str, rank: int) -> int:
        """Return which axis has a name; raises TensorError if none has."""
        names = self.of_rank(rank)
        if name not in names:
            raise TensorError(
                f"the layout {self} does not say which axis is {name} ({_MEANINGS[name]}); "
                f"set_layout of the tensor or of the model does, such as 'NHWC' or 'NCHW'"
            )
        return names.index(name)

    def has(self, *names: str) -> bool:
        """True if it names all of these axes."""
        return all(name in self.names for name in names)

    def permuted(self, order: Sequence[int]) -> Layout:
        """Return the layout of a transposed tensor, axis i of which was ``order[i]``."""
        if not self:
            return self
        names = self.of_rank(len(order))
        made = Layout()
        object.__setattr__(made, "names", tuple(names[axis] for axis in order))
        return made


def axis_order(source: Layout, target: Layout, rank: int) -> list[int | None]:
    """Return for each axis of a target layout which axis of a source it is; None is a new one.

    ``rank`` is that of the source. Axes without a name keep their order. Only named axes can be
    new. Raises TensorError where one layout names what the other has not.
    """
    names = source.of_rank(rank)
    wanted = target.of_rank(rank) if target.rank is None else target.names
    if len(wanted) < rank:
        raise _no_way(source, target, f"{rank} axes cannot become {len(wanted)}")
    open_axes = [axis for axis, name in enumerate(names) if name == "?" or name not in wanted]
    new_count = len(wanted) - rank
    order: list[int | None] = []
    for name in wanted:
        if name != "?" and name in names:
            order.append(names.index(name))
        elif open_axes and (name == "?" or names[open_axes[0]] == "?"):
            order.append(open_axes.pop(0))
        elif new_count and name != "?":
            order.append(None)
            new_count -= 1
        else:
            raise _no_way(source, target, f"nothing tells which axis becomes {name!r}")
    return order


def _no_way(source: Layout, target: Layout, why: str) -> TensorError:
    return TensorError(
        f"the layout {source} cannot be converted to {target}: {why}; name the same axes in both"
    )


def _names_in(text: str) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise _no_layout(text, "it is no text")
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        items = [item.strip().upper() for item in bare[1:-1].split(",")]
    else:
        items = list(bare.upper().replace(_REST, "\0"))
    names = tuple(
        _REST if item in ("\0", _REST) else _LONG_NAMES.get(item, item) for item in items or [_REST]
    )
    named = [name for name in names if name != "?"]
    bad = next((name for name in named if name != _REST and not _is_name(name)), None)
    if bad is not None:
        raise _no_layout(text, f"{bad!r} is no name of an axis")
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise _no_layout(text, f"{twice!r} is in it twice")
    return names


def _is_name(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum()


def _no_layout(text: object, why: str) -> TensorError:
    return TensorError(
        f"{text!r} is no layout: {why}; write a letter for each axis, as in 'NCHW', '?' for one "
        f"without a name and '...' for any number of them, or '[N,C,H,W]'"
    )
