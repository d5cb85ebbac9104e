"""The inputs of a benchmark: random ones by type, and sets that rotate."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.graph import DType, OptionalType, SequenceType, TensorType, ValueType
from ..runtime.tensors.tensor import Port
from .arguments import OptionError

__all__ = ["InputSets", "random_inputs", "random_tensor"]

SEQUENCE_LENGTH = 2  # of a random sequence: the shortest that is more than one tensor


@dataclass(frozen=True)
class InputSets:
    """The values of each input, in rotation: iteration ``k`` takes each input's ``k % n``-th."""

    values: Mapping[str, Sequence[Any]]

    @property
    def count(self) -> int:
        """How many iterations it takes until the input with the most values starts again."""
        return max((len(values) for values in self.values.values()), default=1)

    def at(self, iteration: int) -> dict[str, Any]:
        """Return the inputs of one iteration, by name."""
        return {name: values[iteration % len(values)] for name, values in self.values.items()}


def random_inputs(
    ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], seed: int
) -> dict[str, Any]:
    """Make a value for each port; the same seed, name, type and shape give the same value.

    Floats lie in [0, 1), uint8 is the full range (pixels), other integers are 0 or 1, which every
    embedding and mask takes. Optional inputs are left empty.
    """
    return {
        port.name: _random_value(port.type, port, shapes, _generator(port.name, seed))
        for port in ports
    }


def random_tensor(
    dtype: DType, shape: tuple[int, ...], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Make one array of the element type."""
    if dtype is DType.STRING:
        numbers = generator.integers(0, 1000, shape)
        return np.array([f"text {number}" for number in numbers.flat], object).reshape(shape)
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype is DType.UINT8:
        return generator.integers(0, 256, shape, np.uint8)
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        parts = generator.random((2, *shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(dtype.numpy)
    if dtype.is_floating:
        return np.asarray(generator.random(shape)).astype(dtype.numpy)
    return np.asarray(generator.integers(0, 2, shape)).astype(dtype.numpy)


def _generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _random_value(
    type_: ValueType | None,
    port: Port,
    shapes: Mapping[str, tuple[int, ...]],
    generator: np.random.Generator,
) -> Any:
    if isinstance(type_, TensorType):
        shape = shapes.get(port.name) or _assumed_shape(type_)
        return random_tensor(type_.dtype, shape, generator)
    if isinstance(type_, SequenceType) and type_.element is not None:
        return [_random_value(type_.element, port, {}, generator) for _ in range(SEQUENCE_LENGTH)]
    if isinstance(type_, OptionalType):
        return None
    raise OptionError(
        f"input {port} has a type that random values cannot be made for; give an array with "
        f"-i '{port.name}:FILE.npy'"
    )


def _assumed_shape(type_: TensorType) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else 1 for dim in type_.shape or ())
