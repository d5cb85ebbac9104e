"""The error of a run that no caller has asked for, logged when the run is gone."""

from __future__ import annotations

import logging

__all__ = ["UnretrievedError"]

_log = logging.getLogger("aioinfer")


class UnretrievedError:
    """Goes with its run, and then logs the error, unless that was set to None meanwhile."""

    __slots__ = ("error", "what")

    def __init__(self, what: str, error: BaseException) -> None:
        self.what = what
        self.error: BaseException | None = error

    def __del__(self) -> None:
        if self.error is not None:
            _log.error("an error of %s was never retrieved: %r", self.what, self.error)
