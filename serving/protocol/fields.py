"""Typed fields of a JSON object; what is missing or of another type is named. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .refusal import RefusedError

__all__ = ["Fields", "refuse_wrong_lengths"]


class Fields:
    """One JSON object of a request, and where in the request it stands; a field of null is none.

    Each method raises RefusedError, with the field's path, for what is not of its type.
    """

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            raise RefusedError("an object is wanted", field=path or "the body")
        self.values: dict[str, object] = {
            name: item for name, item in value.items() if item is not None
        }
        self.path = path

    def field(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Return whether a field is there."""
        return name in self.values

    def has_none_of(self, names: frozenset[str]) -> bool:
        """Return whether no field of these names is there."""
        return not self.values or names.isdisjoint(self.values)

    def any(self, name: str) -> object:
        """Return a field as it is; None if it is not there."""
        return self.values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; without a default it must be there."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise RefusedError("a string is wanted", field=self.field(name))
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise RefusedError("true or false is wanted", field=self.field(name))
        return value

    def count(self, name: str, default: int = 0, most: int = (1 << 63) - 1) -> int:
        """Return a whole number of 0 or more."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise RefusedError("a whole number of 0 or more is wanted", field=self.field(name))
        return value

    def items(self, name: str, most: int) -> list[object]:
        """Return a list of at most ``most`` items; [] if it is not there."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise RefusedError("a list is wanted", field=self.field(name))
        if len(value) > most:
            raise RefusedError(
                f"{len(value)} items; at most {most} are taken", field=self.field(name)
            )
        return value

    def shape(self, name: str, most: int) -> tuple[int, ...]:
        """Return a list of lengths."""
        if name not in self.values:
            raise RefusedError("a list of lengths is wanted", field=self.field(name))
        lengths = self.items(name, most)
        refuse_wrong_lengths(lengths, self.field(name), most)
        return tuple(length for length in lengths if isinstance(length, int))

    def inner(self, name: str) -> Fields:
        """Return an object inside; an empty one if it is not there."""
        return Fields(self.values.get(name, {}), self.field(name))


def refuse_wrong_lengths(lengths: Sequence[object], field: str, most: int) -> None:
    """Refuse more lengths than ``most``, and what is no length of a tensor's dimension."""
    if len(lengths) > most:
        raise RefusedError(f"{len(lengths)} items; at most {most} are taken", field=field)
    for length in lengths:
        if type(length) is not int or not 0 <= length < 1 << 40:
            raise RefusedError("lengths are whole numbers of 0 or more", field=field)
