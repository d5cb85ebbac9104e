"""What an answer says of an error: never a path, never a traceback. Pure but for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import count

from ..errors import (
    AioInferError,
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    ModelError,
    NotSupportedError,
    OverloadedError,
    RequestCancelledError,
    TensorError,
)
from .protocol.refusal import RefusedError

__all__ = ["CLIENT_GONE", "load_failure", "refusal_of"]

CLIENT_GONE = 499
"""The status of a request whose client left; only the log has it."""

_RETRY_AFTER_S = 1

_log = logging.getLogger("aioinfer.serving")
_faults = count(1)


def refusal_of(error: BaseException) -> RefusedError:
    """Return what the answer says of an error that ended its request.

    What is the server's own fault is logged with its traceback, under a number that the client is
    told.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, TensorError):
        return RefusedError(str(error), field=f"input {error.tensor!r}" if error.tensor else "")
    if isinstance(error, DeadlineExceededError):
        return RefusedError(str(error), status=504)
    if isinstance(error, OverloadedError):
        return RefusedError(str(error), status=503, retry_after_s=_RETRY_AFTER_S)
    if isinstance(error, ClosedError):
        return RefusedError("the model was unloaded meanwhile", status=503)
    if isinstance(error, RequestCancelledError):
        return RefusedError("cancelled", status=CLIENT_GONE)
    if isinstance(error, DeviceError) and error.resource == "memory":
        _log.warning("out of memory: %s", error)
        text = "too little memory for this request now"
        return RefusedError(text, status=503, retry_after_s=_RETRY_AFTER_S)
    number = next(_faults)
    _log.error("request failed (error %d)", number, exc_info=error)
    return RefusedError(f"the server failed; its log has this as error {number}", status=500)


def load_failure(error: BaseException, folders: Iterable[str]) -> str:
    """Return in one line why a model could not be loaded, without the paths of these folders."""
    if isinstance(error, ModelError):
        text = error.reason
    elif isinstance(error, NotSupportedError | AioInferError):
        text = str(error)
    else:
        text = type(error).__name__
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, "the model directory")
    return " ".join(text.split())
