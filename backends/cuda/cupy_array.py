"""Arrays of other libraries in a GPU's memory, by DLPack, behind what their owners enqueued."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

from ..accelerator.queues.driver import AdoptedArray, DriverError, ErrorKind
from .cupy_device import NOT_READY, CupyDevice
from .cupy_event import CupyEvent, EventPool, RecordedEvent, Submission
from .cupy_memory import CupyMemory, address_of

__all__ = ["Arrivals", "exported"]

_CUDA = 2  # of DLPack's kinds of devices
_MOST_STREAMS = 16


class Arrivals:
    """Takes callers' arrays in one GPU's memory. Thread-safe.

    Each arrives on a stream that is behind no other array which its owner still writes, as long as
    there are not too many of those.
    """

    def __init__(self, device: CupyDevice, pool: EventPool) -> None:
        self._device, self._pool = device, pool
        self._streams: deque[tuple[Any, RecordedEvent | None]] = deque()
        """The one used last comes last, each with the event of the array that came on it last."""

    def adopt(self, given: Any) -> AdoptedArray | None:
        """See a caller's array as it is; None if it is not in this GPU's memory.

        A stream waits for what the array's owner has enqueued on its current stream; an array that
        is not dense is copied there. Called on the owner's thread. Does not block.
        """
        kind, index = given.__dlpack_device__()
        if (int(kind), int(index)) != (_CUDA, self._device.index):
            return None
        stream, written = self._take_stream(), None
        try:
            adopted, written = _adopted(self._device, self._pool, stream, given)
        finally:
            self._streams.append((stream, written))
        return adopted

    def _take_stream(self) -> Any:
        streams = self._streams
        for _ in range(len(streams)):
            try:
                stream, written = streams.popleft()
            except IndexError:  # another thread has taken the last one
                break
            if written is None or written.status != NOT_READY:
                return stream
            streams.append((stream, written))
        try:
            return streams.popleft()[0] if len(streams) >= _MOST_STREAMS else self._new_stream()
        except IndexError:
            return self._new_stream()

    def _new_stream(self) -> Any:
        return self._device.on_device(self._device.cuda.Stream, non_blocking=True)


def _adopted(
    device: CupyDevice, pool: EventPool, stream: Any, given: Any
) -> tuple[AdoptedArray, RecordedEvent]:
    """See an array on a stream, and return the event behind what its owner has enqueued."""
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
    written = submission.end = pool.record(stream)
    adopted = AdoptedArray(
        given=given,
        memory=CupyMemory(array.data.ptr, max(1, array.nbytes)),
        shape=tuple(array.shape),
        dtype=array.dtype,
        is_writable=is_dense,
        written=CupyEvent(pool, stream, submission),
        owner=array,
    )
    return adopted, written


def exported(device: CupyDevice, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
    """Make a DLPack capsule of an array that is complete; its device is the current one.

    CuPy has the stream of ``options`` wait for the calling thread's current one, which has nothing
    to do with the array. Raises DriverError for a type that CuPy does not have.
    """
    owned = device.cuda.UnownedMemory(
        address_of(array.memory), array.memory.size_bytes, array.owner, device.index
    )
    pointer = device.cuda.MemoryPointer(owned, 0)
    try:
        made = device.cupy.ndarray(array.shape, array.dtype, pointer)
        return made.__dlpack__(**options)
    except (TypeError, ValueError) as error:
        raise DriverError(ErrorKind.OTHER, str(error)) from error


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
