"""Arrays of other libraries in a GPU's memory, by DLPack, behind what their owners enqueued."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from ..accelerator.queues.driver import AdoptedArray, DriverError, ErrorKind
from .cupy_device import CupyDevice
from .cupy_event import CupyEvent, EventPool, Submission
from .cupy_memory import CupyMemory

__all__ = ["adopt_array"]

_CUDA = 2  # of DLPack's kinds of devices


def adopt_array(
    device: CupyDevice, pool: EventPool, stream: Any, given: Any
) -> AdoptedArray | None:
    """See a caller's array as it is; None if it is not in this GPU's memory.

    ``stream`` waits for what the array's owner has enqueued on its current stream; an array that
    is not dense is copied there. Called on the owner's thread. Does not block.
    """
    kind, index = given.__dlpack_device__()
    if (int(kind), int(index)) != (_CUDA, device.index):
        return None
    try:
        capsule = given.__dlpack__(stream=stream.ptr)
        array = device.on_device(device.cupy.from_dlpack, _Exported(capsule, device.index))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        kind = device.as_driver_error(error).kind  # CuPy's arrays raise what its calls do
        raise DriverError(kind, f"its DLPack export fails: {error}") from error
    is_dense = bool(array.flags.c_contiguous)
    if not is_dense:
        try:
            array = device.on_device(_dense_copy, device.cupy, array, stream)
        except MemoryError as error:  # of CuPy's pool
            raise DriverError(ErrorKind.OUT_OF_MEMORY, f"it is not dense: {error}") from error
    submission = Submission(None, perf_counter_ns())
    submission.end = pool.record(stream)
    return AdoptedArray(
        given=given,
        memory=CupyMemory(array.data.ptr, max(1, array.nbytes)),
        shape=tuple(array.shape),
        dtype=array.dtype,
        is_writable=is_dense,
        written=CupyEvent(pool, stream, submission),
        owner=array,
    )


class _Exported:
    """An array that was exported for our stream already, on its owner's."""

    def __init__(self, capsule: Any, index: int) -> None:
        self._capsule, self._index = capsule, index

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._index


def _dense_copy(cupy: Any, array: Any, stream: Any) -> Any:
    with stream:
        return cupy.ascontiguousarray(array)
