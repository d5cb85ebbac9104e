"""Constants on the device: named once, uploaded whole or not at all, given back."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from aioinfer.backends.accelerator.memory.weight_store import WeightStore
from aioinfer.backends.accelerator.operand import Buffer
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import DType
from unit.backends.accelerator.fake_memory import FakeMemory
from unit.backends.accelerator.opened import Opened


def arrays(*sizes: int) -> list[np.ndarray]:
    return [np.arange(size, dtype=np.float32) for size in sizes]


def buffers_of(opened: Opened, given: list[np.ndarray]) -> list[Buffer]:
    return [opened.weights.constant(array, DType.FLOAT32) for array in given]


def content(opened: Opened, buffer: Buffer) -> list[float]:
    memory = opened.weights.memory(buffer)
    assert isinstance(memory, FakeMemory)
    numbers: list[float] = memory.data.view(np.float32).tolist()
    return numbers


def test_an_array_is_uploaded_once_whoever_asks(opened: Opened) -> None:
    first, second = arrays(3, 3)
    buffer, other = buffers_of(opened, [first, second])
    assert opened.weights.constant(first, DType.FLOAT32) is buffer
    assert other is not buffer  # equal arrays are not the same
    opened.weights.upload([buffer])
    opened.weights.upload([buffer, other])
    assert opened.weights.missing([buffer, other]) == []
    assert opened.weights.uploaded_bytes == opened.taken_bytes == 24
    assert content(opened, buffer) == content(opened, other) == [0, 1, 2]


def test_a_type_of_its_own_makes_another_constant(opened: Opened) -> None:
    (array,) = arrays(4)
    half = opened.weights.constant(array, DType.FLOAT16)
    assert half is not opened.weights.constant(array, DType.FLOAT32)
    opened.weights.upload([half])
    assert opened.weights.uploaded_bytes == 8


def test_what_is_derived_is_computed_once(opened: Opened) -> None:
    (array,) = arrays(4)
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return array[::-1]

    made = [opened.weights.derived("turned", [array], DType.FLOAT32, compute) for _ in range(2)]
    other = opened.weights.derived("turned twice", [array], DType.FLOAT32, lambda: array)
    assert made[0] is made[1] is not other
    assert len(calls) == 1
    opened.weights.upload([made[0]])
    assert content(opened, made[0]) == [3, 2, 1, 0]


def test_a_constant_without_elements_has_a_place(opened: Opened) -> None:
    (buffer,) = buffers_of(opened, arrays(0))
    opened.weights.upload([buffer])
    assert opened.weights.memory(buffer).size_bytes == 0


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_memory_that_fails_half_way_is_given_back_and_taken_later(
    failing: int, opened: Opened
) -> None:
    (before,) = buffers_of(opened, arrays(2))
    opened.weights.upload([before])
    buffers = buffers_of(opened, arrays(5, 6, 7))
    opened.driver.allocation_errors[1 + failing] = DriverError(ErrorKind.OUT_OF_MEMORY, "no room")
    with pytest.raises(DeviceError, match="taking memory for the weights of 'net': no room"):
        opened.weights.upload([before, *buffers])
    assert opened.weights.missing([before, *buffers]) == buffers
    assert opened.weights.uploaded_bytes == opened.taken_bytes == 8
    assert len(opened.context.alive) == 1
    opened.weights.upload(buffers)
    assert [len(content(opened, buffer)) for buffer in buffers] == [5, 6, 7]
    assert content(opened, buffers[2])[-1] == 6


def test_a_copy_that_fails_leaves_nothing_that_looks_uploaded(opened: Opened) -> None:
    buffers = buffers_of(opened, arrays(5, 6))
    opened.driver.fails["setup: write"] = DriverError(ErrorKind.OTHER, "the bus is gone")
    with pytest.raises(DeviceError, match="uploading weights: the bus is gone"):
        opened.weights.upload(buffers)
    assert opened.weights.missing(buffers) == buffers
    assert opened.taken_bytes == 0
    assert opened.context.alive == []
    opened.weights.upload(buffers)
    assert content(opened, buffers[0]) == [0, 1, 2, 3, 4]


def test_weights_that_do_not_fit_together_are_refused_before_any_is_taken() -> None:
    opened = Opened(memory_bytes=3000, largest_buffer_bytes=2000)
    buffers = buffers_of(opened, arrays(400, 400))
    with pytest.raises(DeviceError, match="the weights of 'net' needs"):
        opened.weights.upload(buffers)
    assert opened.context.buffers == []
    opened.close()


def test_release_gives_everything_back_once(opened: Opened) -> None:
    opened.weights.upload(buffers_of(opened, arrays(3, 4)))
    opened.weights.release()
    opened.weights.release()
    assert opened.weights.uploaded_bytes == opened.taken_bytes == 0
    assert opened.context.alive == []


def test_what_is_not_used_is_given_back_but_for_the_models_own(opened: Opened) -> None:
    own, used, unused = arrays(3, 4, 5)
    weights = WeightStore(opened.device, "net", [own])
    buffers = {
        "own": weights.constant(own, DType.FLOAT32),
        "own, converted": weights.constant(own, DType.FLOAT16),
        "of own": weights.derived("turned", [own], DType.FLOAT32, lambda: own[::-1]),
        "used": weights.constant(used, DType.FLOAT32),
        "unused": weights.constant(unused, DType.FLOAT32),
        "a table": weights.derived("a table", [], DType.FLOAT32, lambda: used),
    }
    weights.upload(buffers.values())
    weights.keep_only([buffers["used"]])
    left = [name for name, buffer in buffers.items() if not weights.missing([buffer])]
    assert left == ["own", "own, converted", "used"]
    assert weights.uploaded_bytes == opened.taken_bytes == 12 + 6 + 16
    assert len(opened.context.alive) == 3
    for array, name in ((own, "own"), (used, "used")):
        assert weights.constant(array, DType.FLOAT32) is buffers[name]
    assert weights.constant(unused, DType.FLOAT32) is not buffers["unused"]
    weights.release()


def test_arrays_go_with_what_was_made_of_them(opened: Opened) -> None:
    kept, uploaded, failed = arrays(3, 4, 5)
    buffer, other, _ = buffers_of(opened, [kept, uploaded, failed])
    opened.weights.upload([buffer, other])
    alive = [weakref.ref(array) for array in (kept, uploaded, failed)]
    del kept, uploaded, failed
    opened.weights.keep_only([buffer])
    assert [array() is not None for array in alive] == [True, False, False]


def test_sources_are_forgotten_and_their_memory_is_not(opened: Opened) -> None:
    (array,) = arrays(3)
    (buffer,) = buffers_of(opened, [array])
    opened.weights.upload([buffer])
    opened.weights.forget_sources()
    assert content(opened, buffer) == [0, 1, 2]
    assert opened.weights.constant(array, DType.FLOAT32) is not buffer
