"""Bodies of HTTP requests, read under bounds of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.types import Receive

from ..failures import CLIENT_GONE
from ..protocol.in_flight import BodyShare
from ..protocol.limits import Limits
from ..protocol.refusal import RefusedError

__all__ = [
    "JSON_LENGTH_HEADER",
    "Headers",
    "Readers",
    "json_length",
    "read_body",
    "written",
]

T = TypeVar("T")
Headers = Sequence[tuple[bytes, bytes]]
"""Of an ASGI scope: names are lower case."""

JSON_LENGTH_HEADER = b"inference-header-content-length"
_ALIGNMENT = 64
_AT_ONCE_BYTES = 64 << 10
"""What is read or written on the event loop; more of it goes to a thread."""
_READER_COUNT = 2
"""Threads that read at once: JSON takes many times its length, and they share the interpreter."""


class Readers:
    """Where bodies are turned into requests: on the event loop, and long ones on threads."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_READER_COUNT)

    async def read(self, size: int, read: Callable[[], T]) -> T:
        """Call ``read``, which looks at a body of that many bytes."""
        # Raw texts take their time, too: how long the JSON part is says too little.
        if size <= _AT_ONCE_BYTES:
            return read()
        return await to_thread.run_sync(read, limiter=self._limiter)


async def written(size: int, write: Callable[[], T]) -> T:
    """Call ``write``, which makes an answer of tensors of that many bytes."""
    return write() if size <= _AT_ONCE_BYTES else await to_thread.run_sync(write)


def json_length(headers: Headers) -> int | None:
    """Return how long the JSON part of the body is; None: all of it. Raises RefusedError."""
    return _whole_number(headers, JSON_LENGTH_HEADER)


def _header(headers: Headers, wanted: bytes) -> str | None:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return None


def _whole_number(headers: Headers, name: bytes) -> int | None:
    text = _header(headers, name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RefusedError("a whole number is wanted", field=f"header {name.decode()}")
    return int(text)


async def read_body(
    headers: Headers, receive: Receive, limits: Limits, share: BodyShare
) -> memoryview:
    """Read a body into its share of the memory for all.

    Raises RefusedError for one that is too long, too slow, or encoded, for which there is no room
    now, and whose client leaves. What comes in several pieces lies so that what follows the JSON
    part is aligned.
    """
    encoding = _header(headers, b"content-encoding")
    if encoding not in (None, "identity"):
        raise RefusedError(f"bodies encoded as {encoding!r} are not taken", status=415)
    length = _whole_number(headers, b"content-length")
    if length is not None and length > limits.body_bytes:
        raise _too_long(limits)
    share.expect(length or 0)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _joined(receive, length, json_length(headers) or 0, limits, share)
    except TimeoutError:
        raise RefusedError(
            f"the body did not come within {limits.body_s:g} s", status=408
        ) from None


def _too_long(limits: Limits) -> RefusedError:
    return RefusedError(f"the body is longer than {limits.body_bytes} bytes", status=413)


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether another one comes."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise RefusedError("the client has gone", status=CLIENT_GONE)
    return message.get("body", b""), message.get("more_body", False)


async def _pieces(receive: Receive, has_more: bool) -> AsyncIterator[bytes]:
    while has_more:
        piece, has_more = await _piece(receive)
        if piece:
            yield piece


async def _joined(
    receive: Receive, length: int | None, head: int, limits: Limits, share: BodyShare
) -> memoryview:
    first, has_more = await _piece(receive)
    share.take(len(first))
    pieces = _pieces(receive, has_more)
    if length == len(first):
        async for _ in pieces:
            raise RefusedError("the body is longer than its Content-Length")
        return memoryview(first)
    if length is None:
        joined = bytearray(first)
        async for piece in pieces:
            share.take(len(piece))
            joined += piece
            if len(joined) > limits.body_bytes:
                raise _too_long(limits)
        return memoryview(joined)
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
