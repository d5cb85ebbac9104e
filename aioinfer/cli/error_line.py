"""Errors as a line of text for people."""

from __future__ import annotations

from ..errors import AioInferError

__all__ = ["error_line"]


def error_line(error: BaseException) -> str:
    """Tell an error in one line; an unexpected one also by its class."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, AioInferError):
        return text
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{str(error.filename)!r}: {error.strerror}"
    return f"{type(error).__name__}: {text} (--debug shows where)"
