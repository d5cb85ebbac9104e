"""Events and errors of pyopencl, as the contract has them."""

from __future__ import annotations

from typing import Any

from ..accelerator.queues.driver import DriverError, ErrorKind

__all__ = ["PyOpenClEvent", "as_driver_error"]

_KINDS = {
    -2: ErrorKind.LOST,  # DEVICE_NOT_AVAILABLE
    -34: ErrorKind.LOST,  # INVALID_CONTEXT: it is not valid any more
    -36: ErrorKind.LOST,  # INVALID_COMMAND_QUEUE
    -4: ErrorKind.OUT_OF_MEMORY,  # MEM_OBJECT_ALLOCATION_FAILURE
    -6: ErrorKind.OUT_OF_MEMORY,  # OUT_OF_HOST_MEMORY
    -61: ErrorKind.OUT_OF_MEMORY,  # INVALID_BUFFER_SIZE
    -5: ErrorKind.OUT_OF_RESOURCES,
    -14: ErrorKind.WAITED_FOR_FAILURE,  # EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
}
_COMPLETE = 0  # of a command's status; below it are errors


def as_driver_error(error: Any) -> DriverError:
    """Make the error of the contract of one of the library's."""
    return DriverError(_kind(getattr(error, "code", None)), str(error))


def _kind(code: object) -> ErrorKind:
    return _KINDS.get(code, ErrorKind.OTHER) if isinstance(code, int) else ErrorKind.OTHER


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
        return DriverError(_kind(status), _status_name(self._cl, status))

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
