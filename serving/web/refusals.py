"""Refusals as HTTP answers."""

from __future__ import annotations

from ..protocol.http_response import refusal_body
from ..protocol.refusal import RefusedError

__all__ = ["refusal_headers", "server_ends", "unknown_address"]


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


def server_ends() -> RefusedError:
    """Return the answer to a request that the end of the server has cut off."""
    return RefusedError("the server ends", status=503)
