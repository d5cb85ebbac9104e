"""Refusals as HTTP answers."""

from __future__ import annotations

from starlette.types import Send

from ..protocol.http_response import refusal_body
from ..protocol.refusal import RefusedError

__all__ = ["JSON_TYPE", "refusal_headers", "send_answer", "unknown_address"]

JSON_TYPE = "application/json"


def refusal_headers(error: RefusedError) -> dict[str, str]:
    """Return the headers of a refusal beside its type and length."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if error.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not waited for
    return headers


def unknown_address(method: str, path: str) -> bytes:
    """Return the body that says that nothing is there."""
    return refusal_body(f"there is nothing at {path!r} for {method}")


async def send_answer(
    send: Send, status: int, body: bytes, kind: str, headers: dict[str, str]
) -> None:
    """Send a whole answer; kind: its content type."""
    told = [
        (b"content-length", b"%d" % len(body)),
        (b"content-type", kind.encode()),
        *((name.encode(), value.encode()) for name, value in headers.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
