"""What ``Model.reshape`` is asked for, as new shapes of inputs and new names of dims. Pure.

A symbol stands for the same length everywhere. So a given dim says of the one that the model
declares there that both are equal, and what is equal is gathered in classes. A class with a length
becomes that length, in all inputs and in what follows from them; any other takes the first name
that it was given.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TensorError, nearest
from .graph import Value
from .shape import Dim, Shape, TensorType, shape_text

__all__ = ["checked_shape", "reshaped_inputs"]

OPEN = -1
"""Leaves a dim open, like None; OpenVINO's word for it."""


def reshaped_inputs(
    inputs: Sequence[Value], asked: Mapping[str, Sequence[Dim]] | Sequence[Dim]
) -> tuple[dict[str, Shape], dict[str, Dim]]:
    """Return the new shape of every input that has one, and what each declared symbol becomes.

    ``asked`` is by input name, or the one shape of a model of one input. Raises TensorError for a
    name that is no input, what is no shape, a rank or length that contradicts the model, a fixed
    length that would be opened, and a symbol that would have two lengths.
    """
    classes = _Classes()
    known = {value.name: value for value in inputs}
    given: dict[str, Shape] = {}
    for name, wanted in _by_name(known, asked).items():
        if name not in known:
            hint = nearest(name, known) if isinstance(name, str) else ""
            raise TensorError(
                f"the model has no input {name!r}{hint}; it has {sorted(known)}",
                tensor=name if isinstance(name, str) else "",
            )
        given[name] = checked_shape(name, wanted)
        declared = _declared(known[name], given[name])
        for axis, (dim, old) in enumerate(zip(given[name], declared, strict=True)):
            said = f"axis {axis} of input {name!r} {shape_text(given[name])}"
            if isinstance(old, str) and dim is not None:
                said += f", which the model declares as {known[name].type}"
                try:
                    classes.join(dim, old, said)
                except TensorError as error:
                    error.tensor = name
                    raise
    shapes: dict[str, Shape] = {}
    for value in inputs:
        if isinstance(value.type, TensorType):
            old_shape = value.type.shape
            dims: Sequence[Dim] | None = given.get(value.name, old_shape)
            if dims is not None:
                olds = dims if old_shape is None else old_shape
                shapes[value.name] = tuple(
                    classes.meaning(old if dim is None else dim)
                    for dim, old in zip(dims, olds, strict=True)
                )
    return shapes, classes.meanings()


@dataclass
class _EqualDims:
    """Symbols that stand for one length, perhaps a known one."""

    symbols: list[str]
    name: str
    """What they are called from now on."""
    is_given: bool = False
    """True if a caller has chosen the name."""
    length: int | None = None
    said: str = ""
    """Where the length was given."""


class _Classes:
    """Which symbols are equal; one that is in no class is only equal to itself."""

    def __init__(self) -> None:
        self._class_of: dict[str, _EqualDims] = {}

    def join(self, given: int | str, declared: str, said: str) -> None:
        """Take a given dim and a declared symbol for equal."""
        mine = self._class(declared)
        if isinstance(given, int):
            self._check(declared, mine, given, said)
            mine.length, mine.said = given, said
        else:
            other = self._class(given)
            if not mine.is_given:
                mine.name = other.name if other.is_given else given
                mine.is_given = True
            if other is not mine:
                self._merge(declared, mine, other, said)

    def meaning(self, dim: Dim) -> Dim:
        """Return the length of a dim's class, or the name that it goes by."""
        found = self._class_of.get(dim) if isinstance(dim, str) else None
        if found is None:
            return dim
        return found.name if found.length is None else found.length

    def meanings(self) -> dict[str, Dim]:
        """Return what every symbol becomes."""
        return {symbol: self.meaning(symbol) for symbol in self._class_of}

    def _class(self, symbol: str) -> _EqualDims:
        return self._class_of.setdefault(symbol, _EqualDims([symbol], symbol))

    def _merge(self, declared: str, mine: _EqualDims, other: _EqualDims, said: str) -> None:
        if other.length is not None:
            self._check(declared, mine, other.length, f"{other.said} and {said}")
            mine.length, mine.said = other.length, other.said
        mine.symbols += other.symbols
        self._class_of.update(dict.fromkeys(other.symbols, mine))

    @staticmethod
    def _check(declared: str, known: _EqualDims, length: int, said: str) -> None:
        if known.length not in (None, length):
            raise TensorError(
                f"symbol {declared!r} would be {known.length} ({known.said}) and {length} "
                f"({said}); give shapes that agree"
            )


def _by_name(known: Mapping[str, Value], asked: Any) -> Mapping[str, Sequence[Dim]]:
    if isinstance(asked, Mapping):
        return asked
    if len(known) != 1:
        raise TensorError(
            f"one shape alone is for a model of one input, and this one has {len(known)}; give a "
            f"mapping, input -> shape, of {sorted(known)}"
        )
    return dict.fromkeys(known, asked)


def checked_shape(name: str, given: Any) -> Shape:
    """Return a shape given for an input, with None for what is left open; or raise TensorError."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TensorError(
            f"the shape of input {name!r} is a tuple or list of lengths, symbols and None, "
            f"not {given!r}",
            tensor=name,
        )
    return tuple(_checked_dim(name, given, axis, dim) for axis, dim in enumerate(given))


def _checked_dim(name: str, given: Sequence[Any], axis: int, dim: Any) -> Dim:
    if dim is None:
        return None
    if isinstance(dim, str):
        if dim.strip():
            return dim
    elif not isinstance(dim, bool):
        try:
            length = operator.index(dim)
        except TypeError:
            length = OPEN - 1
        if length == OPEN:
            return None
        if length >= 0:
            return length
    raise TensorError(
        f"input {name!r} cannot have the shape {list(given)!r}: axis {axis} is {dim!r}, and "
        f"a dimension is a length of 0 or more, a symbol, or None or -1 to leave it open",
        tensor=name,
    )


def _declared(value: Value, given: Shape) -> Shape:
    """Return the shape that the model declares, which the given one does not contradict."""
    if value.type is None:
        raise TensorError(
            f"input {value.name!r} has no type, so its shape alone cannot be set", tensor=value.name
        )
    if not isinstance(value.type, TensorType):
        raise TensorError(
            f"input {value.name!r} is {value.type} and has no shape to give", tensor=value.name
        )
    if value.type.shape is None:
        return (None,) * len(given)
    refusal = f"input {value.name!r} cannot have the shape {shape_text(given)}"
    why = _contradiction(value.type, value.type.shape, given)
    if why:
        raise TensorError(
            f"{refusal}: {why}", tensor=value.name, shape=given, wanted_shape=value.type.shape
        )
    return value.type.shape


def _contradiction(declared: TensorType, shape: Shape, given: Shape) -> str:
    """Return what of a given shape the declared one does not allow; empty if it allows all."""
    if len(shape) != len(given):
        return f"the model declares {declared}, {len(shape)} axes"
    for axis, (dim, old) in enumerate(zip(given, shape, strict=True)):
        if not isinstance(old, int) or dim == old:
            continue
        if isinstance(dim, int):
            return (
                f"axis {axis} of {declared} is {old}; export the model with that axis open, or "
                f"give {old}"
            )
        return f"axis {axis} of {declared} is fixed, and reshape cannot open it; give {old}"
    return ""
