"""JSON from strangers: how many lists it has, and how deep, is known before it is read. Pure.

Numbers take most of a tiny model's request, in and out, so msgspec reads and writes them where it
is installed. A text that it takes is read as Python's own json reads it, to the bit; what it
refuses goes there, which takes more (NaN, for one) and says what is wrong, and where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from .limits import Limits
from .refusal import RefusedError

__all__ = ["read_json", "typed_reader", "write_json"]

T = TypeVar("T")

# An unclosed string ends at the end of the text: else each quote in it would be tried anew.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _installed() -> Any:
    """Return msgspec; None in a service that has not installed it."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


_msgspec = _installed()
_read = _msgspec and _msgspec.json.Decoder().decode
_write = _msgspec and _msgspec.json.Encoder().encode


def read_json(text: bytes | memoryview, limits: Limits) -> object:
    """Read a JSON text. Raises RefusedError if it is too long, too deep, or no JSON."""
    text = _checked(text, limits)
    if _read is not None:
        try:
            read: object = _read(text)
        except (_msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return read
    return _read_slowly(text)


def typed_reader(kind: type[T]) -> Callable[[bytes | memoryview, Limits], T | None]:
    """Make a function that reads a JSON text as a dataclass, within the bounds of ``read_json``.

    Fields that the class does not have are passed over. It returns None for what is no JSON of
    this form, which ``read_json`` and the readers of its fields say more about, and always where
    msgspec is not installed. Raises RefusedError for a text that is too long or too deep.
    """
    if _msgspec is None:
        return lambda text, limits: None
    read = _msgspec.json.Decoder(kind).decode
    refusals = (_msgspec.DecodeError, UnicodeDecodeError, RecursionError)

    def read_typed(text: bytes | memoryview, limits: Limits) -> T | None:
        text = _checked(text, limits)
        try:
            if not text.isascii():
                str(text, "utf-8")  # msgspec does not look into what it passes over
            typed: T = read(text)
        except refusals:
            return None
        return typed

    return read_typed


def _checked(text: bytes | memoryview, limits: Limits) -> bytes:
    """Return the text's bytes. Raises RefusedError if it is too long or too deep."""
    if len(text) > limits.json_bytes:
        raise RefusedError(
            f"JSON of {len(text)} bytes; at most {limits.json_bytes} are taken: send tensors as "
            f"binary data",
            status=413,
        )
    text = bytes(text)
    # What has few brackets, be they in strings, can neither nest too deep nor have too many lists.
    if text.count(b"[") + text.count(b"{") > min(limits.json_depth, limits.json_list_count):
        _refuse_nesting(text, limits)
    return text


def write_json(document: Mapping[str, object]) -> bytes:
    """Write JSON. Callers check for non-finite floats and for bytes, which msgspec would write."""
    if _write is not None:
        with suppress(TypeError, UnicodeEncodeError):  # a text without UTF-8 has escapes
            written: bytes = _write(document)
            return written
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _read_slowly(text: bytes) -> object:
    try:
        read: object = json.loads(str(text, "utf-8-sig"))  # json itself takes UTF-16, too
    except UnicodeDecodeError:
        raise RefusedError("the body is not UTF-8, which JSON is") from None
    except json.JSONDecodeError as error:
        raise RefusedError(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits
        raise RefusedError("the body is not JSON that can be read") from None
    return read


def _refuse_nesting(text: bytes, limits: Limits) -> None:
    list_count, depth = _nesting(text)
    if list_count > limits.json_list_count:
        raise RefusedError(
            f"JSON of {list_count} lists and objects; at most {limits.json_list_count} are taken: "
            f"give flat data, or send tensors as binary data",
            status=413,
        )
    if depth > limits.json_depth:
        raise RefusedError(f"JSON nests {depth} deep; at most {limits.json_depth} is taken")


def _nesting(text: bytes) -> tuple[int, int]:
    """Count the lists and objects of a text, and how deep they nest."""
    brackets = _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    if not brackets:
        return 0, 0
    marks = np.frombuffer(brackets, np.uint8)
    opens = (marks == ord("[")) | (marks == ord("{"))
    return int(opens.sum()), int(np.cumsum(np.where(opens, 1, -1)).max())
