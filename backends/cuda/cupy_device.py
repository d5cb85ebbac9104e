"""CuPy as one GPU is driven with it: calls whose errors are the contract's, and the current device.

CUDA has a current device per thread, which kernels, graphs, memory, streams and events are made or
launched on; what is enqueued on a given stream otherwise needs none. The threads are mostly
others', a user's event loop among them, which may use another GPU. So it is looked at, not
remembered, set for a call that needs it, and put back. It is set even where it is the current one
already: a thread that has only the number of a device has no context yet, and the driver's own
functions, which CuPy and libraries call, refuse to make one.

Most errors of CUDA refuse one call. The others are sticky: the device has failed a command, its
context, which all libraries of the process share, is dead, and from then on every call says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from ..accelerator.queues.driver import DriverError, ErrorKind

__all__ = ["NOT_READY", "SUCCESS", "CupyDevice"]

T = TypeVar("T")

SUCCESS, NOT_READY = 0, 600
"""What an event that has passed is queried with, and one that has not."""

_LOST = (
    4,  # the driver is being unloaded: the process ends
    *(214, 220, 226),  # an uncorrectable error of memory, of NVLink, or contained on the device
    *(700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721),  # a kernel failed
    *(806, 807, 810),  # MPS, through which the device is shared, has ended
    999,  # unknown, and the driver is no better afterwards
)
_KINDS: Mapping[int, ErrorKind] = {
    2: ErrorKind.OUT_OF_MEMORY,
    **dict.fromkeys(_LOST, ErrorKind.LOST),
}
"""By number, the same for the runtime and the driver."""


class CupyDevice:
    """One GPU through ``cupy``, the module or what stands in for it. Thread-safe."""

    def __init__(self, cupy: Any, index: int) -> None:
        self.cupy, self.cuda, self.index = cupy, cupy.cuda, index
        self.runtime = cupy.cuda.runtime
        self._errors = self.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError

    def checked(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call CuPy; its errors become DriverError."""
        try:
            return call(*arguments, **named)
        except self._errors as error:
            raise self.as_driver_error(error) from error

    def on_device(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call CuPy with this as the current device; its errors become DriverError."""
        try:
            with self.current():
                return call(*arguments, **named)
        except self._errors as error:
            raise self.as_driver_error(error) from error

    def called(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function of CUDA's runtime as ``on_device`` does, which takes half as long."""
        try:
            if self.runtime.getDevice() == self.index:
                return call(*arguments)
            with CurrentDevice(self.runtime, self.index):
                return call(*arguments)
        except self._errors as error:
            raise self.as_driver_error(error) from error

    def current(self) -> CurrentDevice:
        """Make this the current device of the thread for a block."""
        return CurrentDevice(self.runtime, self.index)

    def as_driver_error(self, error: BaseException) -> DriverError:
        """Make the error of the contract of one of CuPy's, or of a library's."""
        kind = ErrorKind.OTHER
        if isinstance(error, self._errors):
            kind = _KINDS.get(error.status, kind)
        return DriverError(kind, str(error) or type(error).__name__)

    def failure_of(self, status: int) -> DriverError | None:
        """Make the error of what an event is queried with; None if it has not failed."""
        if status in (SUCCESS, NOT_READY):
            return None
        return self.as_driver_error(self.runtime.CUDARuntimeError(status))


class CurrentDevice:
    """A block with another current device; one object for each block."""

    __slots__ = ("_before", "_index", "_runtime")

    def __init__(self, runtime: Any, index: int) -> None:
        self._runtime, self._index = runtime, index
        self._before = index

    def __enter__(self) -> None:
        self._before = self._runtime.getDevice()
        self._runtime.setDevice(self._index)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before != self._index:
            self._runtime.setDevice(self._before)
