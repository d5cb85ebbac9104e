"""Whole answers on their way to the client: at once where the connection can, else by ASGI."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Scope, Send

from .bodies import JSON_LENGTH_HEADER

__all__ = ["JSON_TYPE", "WHOLE_ANSWER", "WriteWhole", "send_answer", "send_tensors"]

JSON_TYPE = "application/json"
WHOLE_ANSWER = "aioinfer.whole_answer"
"""The extension of a scope with a WriteWhole, ``write``; code that wraps ``send`` takes it out."""

WriteWhole = Callable[[bytes, bytes], bool]
"""Writes an answer of status 200: its headers as they stand in its head, and its body. False: has
written nothing, as the client reads too slowly; ``send`` waits for that."""

_RAW_TYPE = b"application/octet-stream"


async def send_answer(
    send: Send, status: int, body: bytes, kind: str, headers: dict[str, str]
) -> None:
    """Send a whole answer; kind: its content type."""
    told = [
        (b"content-length", b"%d" % len(body)),
        (b"content-type", kind.encode()),
        *((name.encode(), value.encode()) for name, value in headers.items()),
    ]
    await _send(send, status, told, body)


async def send_tensors(scope: Scope, send: Send, body: bytes, json_length: int | None) -> None:
    """Send the answer to an inference; json_length: of its JSON part, if raw tensors follow."""
    told = [(b"content-length", b"%d" % len(body))]
    if json_length is None:
        told.append((b"content-type", JSON_TYPE.encode()))
    else:
        told.append((b"content-type", _RAW_TYPE))
        told.append((JSON_LENGTH_HEADER, b"%d" % json_length))
    write: WriteWhole | None = scope.get("extensions", {}).get(WHOLE_ANSWER, {}).get("write")
    if write is None or not write(b"".join([b"%b: %b\r\n" % header for header in told]), body):
        await _send(send, 200, told, body)


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
