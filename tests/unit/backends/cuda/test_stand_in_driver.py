"""The driver that stands in for CUDA's: its libraries compute, refuse, and are captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import Context, DriverError, Memory, Queue
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from opencl_device import missing_reason
from unit.backends.cuda.library_stand_ins import ACTIVATIONS, TYPES
from unit.backends.cuda.stand_in_driver import StandInDriver

Array = np.ndarray[Any, Any]

CONV: dict[str, Any] = {
    "dtype": "float32",
    "image": (2, 4, 5, 6),
    "filters": (6, 2, 3, 2),
    "strides": (1, 2),
    "pads_begin": (1, 0),
    "pads_end": (0, 1),
    "dilations": (1, 1),
    "groups": 2,
    "has_bias": True,
    "has_residual": True,
    "activation": "relu",
    "number": 0.0,
    "has_tf32": False,
    "workspace_bytes": 64,
}


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    driver = StandInDriver()
    context = driver.open(driver.find_devices()[0])
    yield context
    context.close()


def conv(**changes: Any) -> LibraryOperation:
    return LibraryOperation.of("cudnn", "conv", **{**CONV, **changes})


def upload(context: Context, arrays: Sequence[Array]) -> list[Memory]:
    """Bring arrays to one buffer, each to a part of it, as a plan does."""
    align, queue = context.facts.align_bytes, context.queue("upload")
    lengths = [-(-array.nbytes // align) * align for array in arrays]
    arena, start, parts = context.buffer(sum(lengths)), 0, []
    for array, length in zip(arrays, lengths, strict=True):
        part = arena.part(start, array.nbytes)
        queue.write(part, np.ascontiguousarray(array).reshape(-1).view(np.uint8)).wait()
        parts.append(part)
        start += length
    return parts


def run(context: Context, operation: LibraryOperation, arrays: Sequence[Array]) -> list[Array]:
    """Run an operation twice, by itself and captured, and give its result both times."""
    parts = upload(context, arrays)
    kernel = context.library_program(operation).kernel(operation.name)
    kernel.set_arguments(parts)
    queue, found = context.queue("compute"), list[Array]()

    def enqueue(on: Queue) -> None:
        on.launch(kernel, (), ())

    launch_graph = context.capture(enqueue)
    for way in (lambda: enqueue(queue), lambda: queue.replay(launch_graph)):
        queue.write(parts[-2], np.zeros(parts[-2].size_bytes, np.uint8)).wait()
        way()
        made = np.empty_like(arrays[-2])
        queue.read(made.reshape(-1).view(np.uint8), parts[-2]).wait()
        found.append(made)
    return found


def drawn(operation: LibraryOperation, made: tuple[int, ...]) -> list[Array]:
    """Draw the arguments of a convolution; the result is full of NaN."""
    chance, dtype = np.random.default_rng(3), TYPES[operation["dtype"]]
    batch, channels, height, width = operation["image"]
    filters, inner, rows, columns = operation["filters"]
    shapes = [(batch, height, width, channels), (filters, rows, columns, inner)]
    shapes += [(filters,)] * operation["has_bias"] + [made] * operation["has_residual"]
    arrays = [chance.standard_normal(shape).astype(dtype) for shape in shapes]
    workspace = np.zeros(operation["workspace_bytes"], np.uint8)
    return [*arrays, np.full(made, np.nan, dtype), workspace]


def summed(operation: LibraryOperation, arrays: Sequence[Array], made: tuple[int, ...]) -> Array:
    """Convolve element by element, in float64; no bias, no residual, no activation."""
    x, w = (array.astype(np.float64) for array in arrays[:2])
    group_filters = made[3] // operation["groups"]
    total = np.zeros(made)
    for n, p, q, k in np.ndindex(*made):
        for r, s, c in np.ndindex(*w.shape[1:]):
            place = [
                at * operation["strides"][axis]
                - operation["pads_begin"][axis]
                + step * operation["dilations"][axis]
                for axis, (at, step) in enumerate(((p, r), (q, s)))
            ]
            if all(0 <= at < x.shape[1 + axis] for axis, at in enumerate(place)):
                first = k // group_filters * w.shape[3]
                total[n, p, q, k] += x[n, place[0], place[1], first + c] * w[k, r, s, c]
    return total


@pytest.mark.parametrize("dtype", TYPES)
def test_a_convolution_with_all_that_follows_it(context: Context, dtype: str) -> None:
    operation, made = conv(dtype=dtype), (2, 4, 3, 6)
    arrays = drawn(operation, made)
    bias, residual = (array.astype(np.float64) for array in arrays[2:4])
    wanted = np.maximum(summed(operation, arrays, made) + residual + bias, 0)
    bound = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    for found in run(context, operation, arrays):
        assert np.abs(found.astype(np.float64) - wanted).max() <= bound * wanted.max()


@pytest.mark.parametrize("activation", sorted(set(ACTIVATIONS) - {"gelu_tanh"}))
def test_activations_of_a_convolution(context: Context, activation: str) -> None:
    operation = conv(
        image=(1, 1, 1, 9),
        filters=(1, 1, 1, 1),
        strides=(1, 1),
        pads_begin=(0, 0),
        pads_end=(0, 0),
        groups=1,
        has_bias=False,
        has_residual=False,
        activation=activation,
        number=0.25,
    )
    points = np.array([-8, -3, -1, -0.5, 0, 0.5, 1, 3, 8], np.float32)
    known = {
        "relu": [0, 0, 0, 0, 0, 0.5, 1, 3, 8],
        "relu6": [0, 0, 0, 0, 0, 0.5, 1, 3, 6],
        "leaky_relu": [-2, -0.75, -0.25, -0.125, 0, 0.5, 1, 3, 8],
        "hardswish": [0, 0, -1 / 3, -0.625 / 3, 0, 0.875 / 3, 2 / 3, 3, 8],
        "sigmoid": 1 / (1 + np.exp(-points)),
        "silu": points / (1 + np.exp(-points)),
        "tanh": np.tanh(points),
        "gelu": [0, -0.00404951, -0.15865525, -0.15426877, 0, 0.34573123, 0.84134475, 2.99595, 8],
    }
    arrays = [points.reshape(1, 1, 9, 1), np.ones((1, 1, 1, 1), np.float32)]
    arrays += [np.full((1, 1, 9, 1), np.nan, np.float32), np.zeros(64, np.uint8)]
    for found in run(context, operation, arrays):
        np.testing.assert_allclose(found.reshape(-1), known[activation], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"groups": 3}, "channels do not fit the groups"),
        ({"activation": "swish"}, "activations are"),
        ({"dtype": "float64"}, "types are"),
        ({"dtype": "float16", "has_tf32": True}, "types are"),
        ({"pads_begin": (-1, 0)}, "pads at least 0"),
        ({"strides": (0, 1)}, "at least 1"),
        ({"filters": (6, 2, 9, 2)}, "no elements"),
        ({"image": (2, 4, 5)}, "four lengths"),
        ({"more": 1}, "its parameters are"),
    ],
)
def test_what_cudnn_would_refuse_is_refused(
    context: Context, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DriverError, match=reason):
        context.library_program(conv(**changes))


def test_what_no_library_has_is_refused(context: Context) -> None:
    with pytest.raises(DriverError, match="no 'sort' of 'cudnn'"):
        context.library_program(LibraryOperation.of("cudnn", "sort"))


@pytest.mark.parametrize("index", range(6))
def test_arguments_that_are_too_short_are_refused(context: Context, index: int) -> None:
    operation = conv()
    arrays = drawn(operation, (2, 4, 3, 6))
    arrays[index] = arrays[index].reshape(-1)[:-1]
    kernel = context.library_program(operation).kernel(operation.name)
    with pytest.raises(DriverError, match="bytes, and got"):
        kernel.set_arguments(upload(context, arrays))


def test_an_argument_that_lacks_is_refused(context: Context) -> None:
    operation = conv()
    arrays = drawn(operation, (2, 4, 3, 6))
    kernel = context.library_program(operation).kernel(operation.name)
    with pytest.raises(DriverError, match="takes 6 addresses, and got 5"):
        kernel.set_arguments(upload(context, arrays[1:]))


def test_the_workspace_is_spoilt(context: Context) -> None:
    operation = conv()
    parts = upload(context, drawn(operation, (2, 4, 3, 6)))
    kernel = context.library_program(operation).kernel(operation.name)
    kernel.set_arguments(parts)
    queue, found = context.queue("compute"), np.zeros(64, np.uint8)
    queue.launch(kernel, (), ())
    queue.read(found, parts[-1]).wait()
    assert (found == 0xFF).all()
