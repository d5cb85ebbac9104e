"""Users' functions on CuPy's arrays, called with the launching stream as the current one.

An argument is an array of CuPy's that sees the plan's own memory, so nothing is copied before the
function, and what it returns is copied once, on the device. CuPy orders what it enqueues, and the
memory of its pool, by the thread's current stream: that is the queue's during the call. So the
steps before and behind need no event, and the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import AioInferError
from ..accelerator.queues.driver import Argument, ErrorKind, Kernel
from ..accelerator.queues.user_operation import ArrayForm, UserOperation
from .cupy_device import CupyDevice
from .cupy_memory import CupyMemory

__all__ = ["UserKernel", "UserProgram"]


class UserProgram:
    """A user's function, in the place of a program."""

    __slots__ = ("__weakref__", "_device", "_operation")

    def __init__(self, device: CupyDevice, operation: UserOperation) -> None:
        self._device, self._operation = device, operation

    def kernel(self, name: str) -> Kernel:
        return UserKernel(self._device, self._operation)


class UserKernel:
    """A user's function with arrays; the sizes of its launches say nothing."""

    __slots__ = ("_arrays", "_device", "_operation")

    def __init__(self, device: CupyDevice, operation: UserOperation) -> None:
        self._device, self._operation = device, operation
        self._arrays: tuple[Any, ...] = ()

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        pairs = zip(arguments, self._operation.forms, strict=True)
        with self._device.current():
            self._arrays = tuple([_array(self._device, *pair) for pair in pairs])

    def enqueue(self, stream: Any, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        try:
            with stream:
                self._operation.call(self._arrays)
        except AioInferError as error:
            cause = error.__cause__
            failure = None if cause is None else self._device.as_driver_error(cause)
            if failure is not None and failure.kind is not ErrorKind.OTHER:
                raise failure from error  # of the device, and no fault of the function
            raise


def _array(device: CupyDevice, memory: Argument, form: ArrayForm) -> Any:
    assert isinstance(memory, CupyMemory)
    cuda = device.cuda
    owned = cuda.UnownedMemory(memory.address, memory.size_bytes, memory, device.index)
    return device.cupy.ndarray(form.shape, form.dtype, cuda.MemoryPointer(owned, 0))
