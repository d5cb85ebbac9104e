"""Bodies of HTTP requests, read under bounds of size and time."""

from __future__ import annotations

import asyncio

import numpy as np
from starlette.requests import Request

from ..protocol.in_flight import BodyShare
from ..protocol.limits import Limits
from ..protocol.refusal import RefusedError

__all__ = ["JSON_LENGTH_HEADER", "json_length", "read_body"]

JSON_LENGTH_HEADER = "inference-header-content-length"
_ALIGNMENT = 64


def json_length(request: Request) -> int | None:
    """Return how long the JSON part of the body is; None: all of it. Raises RefusedError."""
    return _whole_number(request, JSON_LENGTH_HEADER)


def _whole_number(request: Request, header: str) -> int | None:
    text = request.headers.get(header)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RefusedError("a whole number is wanted", field=f"header {header}")
    return int(text)


async def read_body(request: Request, limits: Limits, share: BodyShare) -> memoryview:
    """Read a body into its share of the memory for all.

    Raises RefusedError for one that is too long, too slow, or encoded, and for which there is no
    room now. What comes in several pieces lies so that what follows the JSON part is aligned.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise RefusedError(f"bodies encoded as {encoding!r} are not taken", status=415)
    length = _whole_number(request, "content-length")
    if length is not None and length > limits.body_bytes:
        raise _too_long(limits)
    share.expect(length or 0)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _joined(request, length, json_length(request) or 0, limits, share)
    except TimeoutError:
        raise RefusedError(
            f"the body did not come within {limits.body_s:g} s", status=408
        ) from None


def _too_long(limits: Limits) -> RefusedError:
    return RefusedError(f"the body is longer than {limits.body_bytes} bytes", status=413)


async def _joined(
    request: Request, length: int | None, head: int, limits: Limits, share: BodyShare
) -> memoryview:
    pieces = request.stream()
    first = await anext(pieces, b"")
    share.take(len(first))
    if length is None:
        joined = bytearray(first)
        async for piece in pieces:
            share.take(len(piece))
            joined += piece
            if len(joined) > limits.body_bytes:
                raise _too_long(limits)
        return memoryview(joined)
    if len(first) == length:
        async for _ in pieces:
            pass
        return memoryview(first)
    start = -head % _ALIGNMENT  # numpy's own memory is aligned to 16 or more
    memory = np.empty(start + length, np.uint8).data[start:]
    place = 0
    piece = first
    while True:
        end = place + len(piece)
        if end > length:
            raise RefusedError("the body is longer than its Content-Length")
        memory[place:end] = piece
        place = end
        try:
            piece = await anext(pieces)
        except StopAsyncIteration:
            break
        share.take(len(piece))
    if place < length:
        raise RefusedError("the body is shorter than its Content-Length")
    return memory
