"""The error that a client is shown."""

from __future__ import annotations

from ...errors import AioInferError

__all__ = ["RefusedError"]

_LONGEST = 2000  # characters; gRPC refuses trailers of more than some kilobytes


class RefusedError(AioInferError):
    """A request cannot be served as it is; its message is meant for the client.

    ``status``: the HTTP status, from which that of gRPC follows. ``field``: where in the request
    the fault is, such as ``inputs[0].shape``; "" if in no one field. ``retry_after_s``: when to try
    again, where that may help.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        field: str = "",
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(_shortened(f"{field}: {message}" if field else message))
        self.status, self.field, self.retry_after_s = status, field, retry_after_s


def _shortened(text: str) -> str:
    """Cut out the middle of a text that a client's own words have made long."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
