"""Bodies of HTTP requests, read under bounds of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.types import Receive

from ..begun import Begun
from ..failures import CLIENT_GONE
from ..protocol.in_flight import BodyShare
from ..protocol.limits import AT_ONCE_BYTES, VIEWED_BYTES, Limits
from ..protocol.refusal import RefusedError

__all__ = [
    "BODY_SINK",
    "JSON_LENGTH_HEADER",
    "BodyHeaders",
    "Headers",
    "Readers",
    "Sink",
    "read_body",
    "reads_at_once",
    "written",
]

T = TypeVar("T")
Headers = Sequence[tuple[bytes, bytes]]
"""Of an ASGI scope: names are lower case."""

JSON_LENGTH_HEADER = b"inference-header-content-length"
_ALIGNMENT = 64
BODY_SINK = "aioinfer.body_sink"
"""The extension of a scope with ``send_to``, which takes a Sink for what is left of the body; then
``receive`` has no more pieces, and returns at the body's end or when the Sink asked for it. False:
it cannot."""

Sink = Callable[[bytes], bool]
"""Takes a piece of a body, and never raises; False: ``receive`` is to return."""

_READER_COUNT = 2
"""Threads that read at once: JSON takes many times its length, and they share the interpreter."""


class Readers:
    """Where bodies are turned into requests: on the event loop, and long ones on threads."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_READER_COUNT)

    async def read(self, size: int, read: Callable[[], T]) -> T:
        """Call ``read``, which looks at a body of that many bytes."""
        # Raw texts take their time, too: how long the JSON part is says too little.
        if size <= AT_ONCE_BYTES:
            return read()
        return await to_thread.run_sync(read, limiter=self._limiter)


def reads_at_once(body: memoryview, json_length: int | None) -> bool:
    """Return whether a request is soon read: it is short, or raw numbers behind a short JSON."""
    if len(body) <= AT_ONCE_BYTES:
        return True
    if json_length is None or json_length > AT_ONCE_BYTES or len(body) > VIEWED_BYTES:
        return False
    text = bytes(body[:json_length])
    return b"BYTES" not in text and b"\\" not in text  # which could write it otherwise


async def written(size: int, write: Callable[[], T]) -> T:
    """Call ``write``, which makes an answer of tensors of that many bytes."""
    return write() if size <= AT_ONCE_BYTES else await to_thread.run_sync(write)


class BodyHeaders(NamedTuple):
    """What a request's headers say of its body."""

    length: int | None
    """Of all of it; None: it is not known."""
    json_length: int | None
    """Of the JSON part, in front; None: all of it is."""

    @classmethod
    def of(cls, headers: Headers) -> BodyHeaders:
        """Read them; of several of a name the first. Raises RefusedError for what is not taken."""
        length = json_length = None
        for name, value in reversed(headers):
            if name == b"content-length":
                length = _whole_number(name, value)
            elif name == JSON_LENGTH_HEADER:
                json_length = _whole_number(name, value)
            elif name == b"content-encoding" and value.lower() not in (b"identity", b""):
                encoding = value.decode("latin-1")
                raise RefusedError(f"bodies encoded as {encoding!r} are not taken", status=415)
        return cls(length, json_length)


def _whole_number(name: bytes, value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise RefusedError("a whole number is wanted", field=f"header {name.decode()}")
    return int(value)


async def read_body(
    headers: BodyHeaders,
    receive: Receive,
    limits: Limits,
    share: BodyShare,
    extensions: Mapping[str, Any] | None = None,
) -> memoryview:
    """Read a body into its share of the memory for all.

    extensions: of the request's scope; a long body goes from the connection to its place.
    Raises RefusedError for one that is too long or too slow, for which there is no room now, and
    whose client leaves. What comes in several pieces lies so that what follows the JSON part is
    aligned.
    """
    length = headers.length
    if length is not None and length > limits.body_bytes:
        raise _too_long(limits)
    share.expect(length or 0)
    sink = (extensions or {}).get(BODY_SINK, {}).get("send_to")
    joined = Begun(_joined(receive, length, headers.json_length or 0, limits, share, sink))
    if joined.is_over:
        return joined.result
    try:
        async with asyncio.timeout(limits.body_s):
            return await joined
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
        if piece or has_more:
            yield piece


class _Filling:
    """A body on its way to its place, which counts as its pieces come."""

    def __init__(self, memory: memoryview, share: BodyShare) -> None:
        self.memory, self.place, self._share = memory, 0, share
        self.error: RefusedError | None = None

    def write(self, piece: bytes) -> bool:
        """Be a Sink."""
        end = self.place + len(piece)
        try:
            if end > len(self.memory):
                raise RefusedError("the body is longer than its Content-Length")
            self._share.take(len(piece))
        except RefusedError as error:
            self.error = error
            return False
        self.memory[self.place : end] = piece
        self.place = end
        return True


async def _joined(
    receive: Receive,
    length: int | None,
    head: int,
    limits: Limits,
    share: BodyShare,
    send_to: Callable[[Sink], bool] | None,
) -> memoryview:
    first, has_more = await _piece(receive)
    if length == len(first) and not has_more:
        share.take(len(first))
        return memoryview(first)
    pieces = _pieces(receive, has_more)
    if length == len(first):
        share.take(length)
        async for piece in pieces:
            if piece:
                raise RefusedError("the body is longer than its Content-Length")
        return memoryview(first)
    if length is None:
        share.take(len(first))
        joined = bytearray(first)
        async for piece in pieces:
            share.take(len(piece))
            joined += piece
            if len(joined) > limits.body_bytes:
                raise _too_long(limits)
        return memoryview(joined)
    start = -head % _ALIGNMENT  # numpy's own memory is aligned to 16 or more
    filling = _Filling(np.empty(start + length, np.uint8).data[start:], share)
    filling.write(first)
    if has_more and send_to is not None:
        send_to(filling.write)
    while filling.error is None:
        try:
            filling.write(await anext(pieces))
        except StopAsyncIteration:
            break
    if filling.error is not None:
        raise filling.error
    if filling.place < length:
        raise RefusedError("the body is shorter than its Content-Length")
    return filling.memory
