"""Functions of users on CuPy's arrays, against a GPU that does everything later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind, Kernel, Memory
from aioinfer.backends.accelerator.queues.user_operation import ArrayForm, UserOperation
from aioinfer.errors import DeviceError, TensorError
from unit.backends.cuda.fake_gpu import FakeRuntimeError
from unit.backends.cuda.opened_gpu import OpenedGpu

X = np.arange(12, dtype=np.float32).reshape(3, 4)
FORM = ArrayForm(X.shape, X.dtype)


@pytest.fixture
def opened() -> OpenedGpu:
    return OpenedGpu()


def operation(function: Any, **attributes: Any) -> UserOperation:
    return UserOperation.of_function(
        function, attributes, [FORM], [(0, FORM)], node="mine", op="com.example::Mine"
    )


def bound(opened: OpenedGpu, made: UserOperation, *memory: Memory) -> Kernel:
    kernel = opened.context.library_program(made).kernel(made.name)
    kernel.set_arguments(memory)
    return kernel


def arena(opened: OpenedGpu) -> tuple[Memory, Memory]:
    memory = opened.context.buffer(1024)
    return memory.part(256, X.nbytes), memory.part(512, X.nbytes)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_enqueued_between_what_stands_before_and_behind(opened: OpenedGpu, seed: int) -> None:
    source, target = arena(opened)
    queue, found, calls = opened.context.queue("compute"), np.zeros_like(X), []

    def times(x: Any, *, factor: float) -> Any:
        calls.append(factor)
        assert opened.cupy.current == len(opened.cupy.gpus) - 1
        return x.made_of(lambda content: content * np.float32(factor))

    kernel = bound(opened, operation(times, factor=3.0), source, target)
    for number in range(1, 4):
        queue.write(source, (X * number).reshape(-1).view(np.uint8))
        queue.launch(kernel, (), ())
        ended = queue.read(found.reshape(-1).view(np.uint8), target)
        assert not ended.is_over, "the host waits for nothing"
        opened.gpu.run_all(seed + number)
        assert ended.is_over
        np.testing.assert_array_equal(found, 3 * number * X)
    assert calls == [3.0] * 3
    assert opened.cupy.streams_in_use == []


def test_its_arguments_may_be_exchanged(opened: OpenedGpu) -> None:
    source, target = arena(opened)
    other, queue = opened.context.buffer(X.nbytes), opened.context.queue("compute")
    kernel = bound(opened, operation(lambda x: x.made_of(np.negative)), source, target)
    kernel.set_arguments([other, target])
    queue.write(other, X.reshape(-1).view(np.uint8))
    queue.launch(kernel, (), ())
    opened.gpu.run_all(1)
    assert (opened.bytes_of(target) == (-X).reshape(-1).view(np.uint8)).all()


@pytest.mark.parametrize(
    ("status", "kind"), [(700, ErrorKind.LOST), (2, ErrorKind.OUT_OF_MEMORY)], ids=str
)
def test_a_failure_of_the_device_is_told_as_such(
    opened: OpenedGpu, status: int, kind: ErrorKind
) -> None:
    def fails(x: Any) -> Any:
        raise FakeRuntimeError(status)

    queue = opened.context.queue("compute")
    kernel = bound(opened, operation(fails), *arena(opened))
    with pytest.raises(DriverError) as caught:
        queue.launch(kernel, (), ())
    assert caught.value.kind is kind
    assert opened.cupy.streams_in_use == []


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FakeRuntimeError(9), TensorError, "com.example::Mine .node 'mine'. on .float32.3,4"),
        (ValueError("no"), TensorError, "failed with ValueError: no"),
        (MemoryError("pool"), DeviceError, "ran out of memory: pool"),
    ],
    ids=["cuda", "own", "memory"],
)
def test_a_failure_of_its_own_names_the_node(
    opened: OpenedGpu, error: Exception, kind: type[Exception], text: str
) -> None:
    def fails(x: Any) -> Any:
        raise error

    queue = opened.context.queue("compute")
    kernel = bound(opened, operation(fails), *arena(opened))
    with pytest.raises(kind, match=text):
        queue.launch(kernel, (), ())


def test_an_array_of_the_host_is_refused(opened: OpenedGpu) -> None:
    queue = opened.context.queue("compute")
    kernel = bound(opened, operation(lambda x: X), *arena(opened))
    with pytest.raises(TensorError, match=r"output 0 is a ndarray, and a .*FakeView is wanted"):
        queue.launch(kernel, (), ())


def test_no_two_are_the_same_program() -> None:
    one, other = operation(abs), operation(abs)
    assert one.name != other.name
    assert one != other
