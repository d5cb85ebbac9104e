"""Arrays of other libraries on a fake GPU: whose they are, and behind what they are read."""

from __future__ import annotations

import gc
import random
import weakref
from collections import deque

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import AdoptedArray, DriverError, ErrorKind
from unit.backends.cuda.fake_cupy import FakeOwner
from unit.backends.cuda.fake_gpu import FakeGpu
from unit.backends.cuda.opened_gpu import OpenedGpu

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def opened() -> OpenedGpu:
    return OpenedGpu()


def adopted(opened: OpenedGpu, given: object) -> AdoptedArray:
    found = opened.context.adopt(given)
    assert found is not None
    return found


def test_an_array_is_seen_as_it_is(opened: OpenedGpu) -> None:
    given = FakeOwner(opened.cupy, X)
    found = adopted(opened, given)
    assert found.given is given
    assert (found.shape, found.dtype, found.size_bytes) == (X.shape, X.dtype, X.nbytes)
    assert found.is_writable
    assert found.memory.address == given.array.data.ptr


@pytest.mark.parametrize("is_dense", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_a_copy_behind_it_sees_what_its_owner_has_enqueued(
    seed: int, is_dense: bool, opened: OpenedGpu
) -> None:
    found = adopted(opened, FakeOwner(opened.cupy, X, is_dense))
    assert found.is_writable == is_dense
    queue, target = opened.context.queue("upload"), opened.context.buffer(2 * X.nbytes)
    queue.wait_for([found.written])
    event = queue.copy(target, found.memory, X.nbytes, X.nbytes)
    order = random.Random(seed)
    while opened.gpu.advance(order):
        pass
    event.wait()
    np.testing.assert_array_equal(opened.bytes_of(target)[X.nbytes :].view(np.float32), X.ravel())


def test_its_memory_lives_as_long_as_it_is_held(opened: OpenedGpu) -> None:
    found = adopted(opened, FakeOwner(opened.cupy, X, is_dense=False))
    copy = weakref.ref(found.owner)
    opened.gpu.run_all()
    gc.collect()
    np.testing.assert_array_equal(opened.bytes_of(found.memory).view(np.float32), X.ravel())
    del found
    gc.collect()
    assert copy() is None


def test_an_array_of_another_gpu_is_not_this_ones() -> None:
    opened = OpenedGpu(FakeGpu(), FakeGpu())
    assert opened.context.adopt(FakeOwner(opened.cupy, X)) is None  # made on the first


@pytest.mark.parametrize("error", [BufferError("it needs a gradient"), RuntimeError("no type")])
def test_an_export_that_fails_says_why(error: Exception, opened: OpenedGpu) -> None:
    class Refusing(FakeOwner):
        def __dlpack__(self, *, stream: int) -> None:
            raise error

    with pytest.raises(DriverError, match=f"its DLPack export fails: {error}"):
        opened.context.adopt(Refusing(opened.cupy, X))


@pytest.mark.parametrize(
    ("status", "kind"), [(700, ErrorKind.LOST), (2, ErrorKind.OUT_OF_MEMORY), (1, ErrorKind.OTHER)]
)
def test_an_export_that_fails_for_the_device_says_what_that_means(
    status: int, kind: ErrorKind, opened: OpenedGpu
) -> None:
    class Failing(FakeOwner):
        def __dlpack__(self, *, stream: int) -> None:
            raise opened.cupy.cuda.runtime.CUDARuntimeError(status)

    with pytest.raises(DriverError, match="its DLPack export fails") as raised:
        opened.context.adopt(Failing(opened.cupy, X))
    assert raised.value.kind is kind


def test_no_room_for_a_dense_copy_is_told_as_such(opened: OpenedGpu) -> None:
    def refuse(array: object) -> None:
        raise MemoryError("out of memory allocating 24 bytes")

    opened.cupy.ascontiguousarray = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(DriverError, match="not dense: out of memory") as raised:
        opened.context.adopt(FakeOwner(opened.cupy, X, is_dense=False))
    assert raised.value.kind is ErrorKind.OUT_OF_MEMORY


def test_an_array_that_is_not_written_yet_holds_up_no_other(opened: OpenedGpu) -> None:
    slow, quick = FakeOwner(opened.cupy, X), FakeOwner(opened.cupy, X)
    late, early = adopted(opened, slow), adopted(opened, quick)
    held, slow._stream.commands = slow._stream.commands, deque()
    opened.gpu.run_all()
    assert (late.written.is_over, early.written.is_over) == (False, True)
    slow._stream.commands = held
    opened.gpu.run_all()
    assert late.written.is_over


def test_arrays_come_on_few_streams_that_are_used_again(opened: OpenedGpu) -> None:
    owner = FakeOwner(opened.cupy, X)
    before = len(opened.gpu.streams)
    for _ in range(5):
        adopted(opened, owner)
        opened.gpu.run_all()
    assert len(opened.gpu.streams) == before + 1
    owners = [FakeOwner(opened.cupy, X) for _ in range(40)]
    before = len(opened.gpu.streams)
    waiting = [adopted(opened, item) for item in owners]
    assert len(opened.gpu.streams) < before + len(owners) // 2
    opened.gpu.run_all()
    assert all(item.written.is_over for item in waiting)
