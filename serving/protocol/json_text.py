"""JSON from strangers: how many lists it has, and how deep, is known before it is read. Pure."""

from __future__ import annotations

import json
import re

import numpy as np

from .limits import Limits
from .refusal import RefusedError

__all__ = ["read_json"]

# An unclosed string ends at the end of the text: else each quote in it would be tried anew.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def read_json(text: bytes | memoryview, limits: Limits) -> object:
    """Read a JSON text. Raises RefusedError if it is too long, too deep, or no JSON."""
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
