"""Handles of oneDNN's objects, and the error of a call that it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

from ....errors import NotSupportedError
from .numbers import STATUS_TEXTS

__all__ = ["Handle", "OneDnnError"]


class OneDnnError(NotSupportedError):
    """oneDNN refused a call."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"oneDNN's {call} failed: {STATUS_TEXTS.get(status, f'status {status}')}")


class Handle:
    """A handle of the library, destroyed with this object.

    Give the object itself to a call, so that it lives until the call is over; ``handle`` is the
    address as a number, for the step table. What shows the handle of another object, and keeps
    that, does not call ``__init__``.
    """

    __slots__ = ("_as_parameter_", "_destroy", "handle")

    def __init__(self, handle: int, destroy: Any) -> None:
        self.handle = handle
        self._as_parameter_ = c_void_p(handle)
        self._destroy = destroy

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        destroy = getattr(self, "_destroy", None)
        if destroy is not None and not is_finalizing():
            destroy(self._as_parameter_)
