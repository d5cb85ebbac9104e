"""What users give for a property, in numbers or in words, as the typed value that it means.

A parser raises ValueError that says what is wanted; its caller adds key, value and device.
What a parser returns, it takes again.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

from ...errors import nearest

__all__ = [
    "Parser",
    "parse_ascending",
    "parse_boolean",
    "parse_choice",
    "parse_input_shapes",
    "parse_integer",
    "parse_locations",
    "parse_mapping",
    "parse_pass_names",
    "parse_seconds",
    "parse_share",
    "parse_state",
    "parse_text",
]

T = TypeVar("T")

Parser = Callable[[Any], T]
"""Makes the typed value of what a user gave; raises ValueError that says what is wanted."""

HIGHEST = (1 << 63) - 1  # what an ONNX length, and a number in any device's own code, can hold
_DIGITS = re.compile(r"[+-]?[0-9]{1,20}")


def parse_text(given: Any) -> str:
    """Take a string."""
    if not isinstance(given, str):
        raise ValueError("a string is wanted")
    return given


def parse_boolean(given: Any) -> bool:
    """Take a bool, or YES, NO, TRUE or FALSE in any case."""
    words = {"YES": True, "TRUE": True, "NO": False, "FALSE": False}
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.upper() in words:
        return words[given.upper()]
    raise ValueError("True, False, 'YES' or 'NO' is wanted")


def parse_integer(
    low: int, names: Mapping[str, int] | None = None, high: int = HIGHEST
) -> Parser[int]:
    """Take an integer from ``low`` to ``high``, as number or digits, or a name or its number."""
    wanted = f"an integer of at least {low}" if high == HIGHEST else f"an integer {low} to {high}"
    if names:
        wanted += f", or {', '.join(f'{name} ({number})' for name, number in names.items())},"

    def parse(given: Any) -> int:
        if isinstance(given, str) and names and given.upper() in names:
            return names[given.upper()]
        number = _integer(given)
        is_named = names is not None and number in names.values()
        if number is None or not (low <= number <= high or is_named):
            raise ValueError(f"{wanted} is wanted")
        return number

    return parse


def _integer(given: Any) -> int | None:
    """Take an integer of any type, numpy's too, or in digits; None if it is none."""
    if isinstance(given, str):
        return int(given) if _DIGITS.fullmatch(given.strip()) else None
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def parse_ascending(what: str) -> Parser[tuple[int, ...]]:
    """Take ascending integers from 1 on, in a sequence or a text with commas; '' is none."""
    wanted = f"ascending {what} from 1 on, as in '1,2,4,8', or '' for none are wanted"
    parse_item = parse_integer(1)

    def parse(given: Any) -> tuple[int, ...]:
        if isinstance(given, str):
            given = given.split(",") if given.strip() else ()
        if not isinstance(given, list | tuple):
            raise ValueError(wanted)
        try:
            found = tuple(parse_item(item) for item in given)
        except ValueError as error:
            raise ValueError(wanted) from error
        if any(one >= other for one, other in pairwise(found)):
            raise ValueError(wanted)
        return found

    return parse


def parse_seconds(given: Any) -> float:
    """Take a finite number of seconds, 0 or more, of any numeric type or in digits."""
    wanted = "a number of seconds, 0 or more, is wanted"
    if isinstance(given, bool):
        raise ValueError(wanted)
    try:
        seconds = float(given)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(wanted) from None
    if not 0 <= seconds < math.inf:
        raise ValueError(wanted)
    return seconds


def parse_choice(*choices: str) -> Parser[str]:
    """Take one of the words, in any case."""
    by_folded = {choice.casefold(): choice for choice in choices}

    def parse(given: Any) -> str:
        if isinstance(given, str) and given.casefold() in by_folded:
            return by_folded[given.casefold()]
        raise ValueError(f"one of {', '.join(map(repr, choices))} is wanted")

    return parse


def parse_share(given: Any) -> str:
    """Take a part as 'number/count', the first is 0; '' is the whole."""
    if given == "":
        return ""
    number, _, count = given.partition("/") if isinstance(given, str) else ("", "", "")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise ValueError("'NUMBER/COUNT' is wanted, such as '0/2' for the first of two, or ''")
    return f"{int(number)}/{int(count)}"


def parse_mapping(given: Any) -> Mapping[str, Any]:
    """Take a mapping with string keys; the result is a read-only copy."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ValueError("a mapping with string keys is wanted")
    return MappingProxyType(dict(given))


def parse_state(given: Any) -> Mapping[str, str] | str:
    """Take a mapping input -> output, of which the result is a read-only copy, or AUTO."""
    if isinstance(given, str) and given.upper() == "AUTO":
        return "AUTO"
    wanted = "a mapping from inputs to outputs is wanted, such as {'past': 'present'}, or 'AUTO'"
    if not isinstance(given, Mapping):
        raise ValueError(wanted)
    for name, output in given.items():
        if not isinstance(name, str) or not isinstance(output, str):
            raise ValueError(f"{wanted}; the entry {name!r}: {output!r} is none")
    return MappingProxyType(dict(given))


def parse_locations(given: Any) -> Mapping[str, str]:
    """Take a mapping name -> DEVICE or HOST, in any case; the result is a read-only copy."""
    word = parse_choice("DEVICE", "HOST")
    return MappingProxyType({name: word(item) for name, item in parse_mapping(given).items()})


def parse_pass_names(known: Callable[[], Collection[str]]) -> Parser[tuple[str, ...]]:
    """Take names of passes, in a collection or with commas between them; ``known`` lists all."""

    def parse(given: Any) -> tuple[str, ...]:
        there_are = f"there are {', '.join(known())}"
        names = given.split(",") if isinstance(given, str) else given
        is_collection = isinstance(names, Collection) and not isinstance(names, bytes | Mapping)
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names of passes, separated by commas, are wanted; {there_are}")
        wanted = tuple(name.strip() for name in names if name.strip())
        for name in wanted:
            if name not in known():
                raise ValueError(f"there is no pass {name!r}{nearest(name, known())}; {there_are}")
        return wanted

    return parse


def parse_input_shapes(given: Any) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Take one signature, a mapping input name -> shape, or a sequence of signatures."""
    signatures = [given] if isinstance(given, Mapping) else given
    wanted = "a mapping input name -> shape, or a sequence of such mappings, is wanted"
    if not isinstance(signatures, Sequence) or isinstance(signatures, str):
        raise ValueError(wanted)
    parsed = []
    for signature in signatures:
        if not isinstance(signature, Mapping):
            raise ValueError(wanted)
        shapes = {}
        for name, shape in signature.items():
            if not isinstance(shape, Sequence) or isinstance(shape, str):
                raise ValueError(f"{wanted}; the shape of {name!r} is {shape!r}")
            lengths = [None if isinstance(dim, str) else _integer(dim) for dim in shape]
            if not all(length is not None and 0 <= length <= HIGHEST for length in lengths):
                raise ValueError(f"lengths are integers of at least 0; {name!r} has {shape!r}")
            shapes[str(name)] = tuple(length for length in lengths if length is not None)
        parsed.append(MappingProxyType(shapes))
    return tuple(parsed)
