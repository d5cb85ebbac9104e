"""Events and errors of pyopencl, as the contract has them."""

from __future__ import annotations

from typing import Any

from .driver import DriverError

__all__ = ["PyOpenClEvent", "as_driver_error"]

_NO_CODE = -9999
_COMPLETE = 0  # of a command's status; below it are errors


def as_driver_error(error: Any) -> DriverError:
    """Make the error of the contract of one of the library's."""
    code = getattr(error, "code", _NO_CODE)
    return DriverError(code if isinstance(code, int) else _NO_CODE, str(error))


class PyOpenClEvent:
    """An event, and what has to live until it is over."""

    __slots__ = ("_cl", "raw")

    def __init__(self, cl: Any, raw: Any) -> None:
        self._cl, self.raw = cl, raw

    def wait(self) -> None:
        try:
            self.raw.wait()
        except self._cl.Error as error:
            raise as_driver_error(error) from error

    @property
    def is_over(self) -> bool:
        return self._status() <= _COMPLETE

    @property
    def failure(self) -> DriverError | None:
        status = self._status()
        if status >= _COMPLETE:
            return None
        return DriverError(status, _status_name(self._cl, status))

    @property
    def times_ns(self) -> tuple[int, int]:
        info = self._cl.profiling_info
        return self._time_ns(info.START), self._time_ns(info.END)

    @property
    def queued_ns(self) -> int:
        return self._time_ns(self._cl.profiling_info.QUEUED)

    def _status(self) -> int:
        try:
            status: int = self.raw.command_execution_status
        except self._cl.Error as error:
            raise as_driver_error(error) from error
        return status

    def _time_ns(self, which: Any) -> int:
        try:
            time_ns: int = self.raw.get_profiling_info(which)
        except self._cl.Error as error:
            raise as_driver_error(error) from error
        return time_ns


def _status_name(cl: Any, status: int) -> str:
    try:
        return f"{cl.status_code.to_string(status)} ({status})"
    except ValueError:  # one of the driver's own
        return f"the driver's error {status}"
