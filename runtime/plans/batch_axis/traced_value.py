"""What the analysis knows of a value, and how rules say that rows do not keep apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import DType, Node, TensorType, Value
from .size import Size, length_of, unknown_length, unknown_number

__all__ = [
    "FEW",
    "NotApartError",
    "Rule",
    "Traced",
    "axis_at",
    "free_value",
    "given",
    "in_rows",
    "integer",
    "known_integers",
    "leading_rows",
    "need_free",
    "of_constant",
    "result_dims",
]

FEW = 64
"""Numbers of a list that may be a shape, or a part of one."""
_COUNTED = frozenset({DType.INT64, DType.INT32, DType.BOOL})


class NotApartError(Exception):
    """Why rows are not known to keep apart; the text goes on after the name of the node."""


@dataclass(frozen=True, slots=True)
class Traced:
    """What is known of a value: lengths, the axis of the rows, and its content if that is numbers.

    With an ``axis`` the batch is the outer factor of that length, and of no other; block ``r`` of
    the axis depends on row ``r`` of the inputs, and on ``r``, alone. Without one the value does not
    depend on the rows; nor on how many there are, unless ``numbers`` say so. ``numbers`` are those
    of a short list or a single integer. ``dims`` None: not even the rank is known; never with an
    axis.
    """

    dims: tuple[Size, ...] | None
    axis: int | None = None
    numbers: tuple[Size, ...] | None = None

    @property
    def is_free(self) -> bool:
        """True if neither the rows nor their count change it."""
        return self.axis is None and not self.counts_rows

    @property
    def counts_rows(self) -> bool:
        """True if its content changes with the size of the batch."""
        return any(number.has_batch for number in self.numbers or ())

    @property
    def shape(self) -> tuple[Size, ...]:
        """Its lengths; raises NotApartError where the rank is not known."""
        if self.dims is None:
            raise NotApartError("the rank of one of its inputs is not known")
        return self.dims

    @property
    def rank(self) -> int:
        """How many axes it has; raises NotApartError where that is not known."""
        return len(self.shape)

    @property
    def row_axis(self) -> int:
        """The axis of the rows; only where there is one."""
        assert self.axis is not None
        return self.axis

    @property
    def rows(self) -> Size:
        """The length of the axis of the rows."""
        return self.shape[self.row_axis]


Rule = Callable[[Node, Sequence[Traced | None]], Traced | list[Traced]]
"""What a node makes of its inputs, None for those left out; a list is for all its outputs.

Called when an input has rows, or counts them. Raises NotApartError with a reason.
"""


def given(inputs: Sequence[Traced | None], index: int) -> Traced | None:
    """Take an input; None if it is left out."""
    return inputs[index] if index < len(inputs) else None


def in_rows(inputs: Sequence[Traced | None], index: int = 0) -> Traced:
    """Take an input that has to have rows."""
    found = given(inputs, index)
    if found is None or found.axis is None:
        raise NotApartError(f"its input {index} is the same for all rows, and another is not")
    return found


def leading_rows(inputs: Sequence[Traced | None], index: int = 0) -> Traced:
    """Take an input whose rows have to be along the first axis."""
    found = in_rows(inputs, index)
    if found.axis != 0:
        raise NotApartError(f"the rows of its input {index} are along axis {found.axis}, not 0")
    return found


def need_free(inputs: Sequence[Traced | None], *indices: int) -> None:
    """Ask for parameters that are the same for all rows; no indices: all but the first input."""
    for index in indices or range(1, len(inputs)):
        found = given(inputs, index)
        if found is not None and not found.is_free:
            raise NotApartError(f"its input {index} depends on the batch")


def integer(node: Node, name: str, default: int) -> int:
    """Read an attribute."""
    return int(node.attributes.get(name, default))


def axis_at(axis: int, rank: int) -> int:
    """Count an axis from the front."""
    return axis + rank if axis < 0 else axis


def known_integers(traced: Traced | None) -> list[int] | None:
    """Return the content of a list if all of it is known."""
    if traced is None or traced.numbers is None:
        return None
    found = [number.known for number in traced.numbers]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def of_constant(array: np.ndarray) -> Traced:
    """Describe a constant."""
    dims = tuple(Size(length) for length in array.shape)
    is_list = array.ndim <= 1 and array.size <= FEW and array.dtype.kind in "iub"
    numbers = tuple(Size(int(item)) for item in array.reshape(-1)) if is_list else None
    return Traced(dims, None, numbers)


def free_value(value: Value, numbers: tuple[Size, ...] | None = None) -> Traced:
    """Describe a result that the batch does not change, by its type."""
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return Traced(None)
    dims = result_dims(value, len(kind.shape), {})
    if numbers is None and len(dims) <= 1 and kind.dtype in _COUNTED:
        count = dims[0].known if dims else 1
        if count is not None and count <= FEW:
            numbers = tuple(unknown_number(value.name, index) for index in range(count))
    return Traced(dims, None, numbers)


def result_dims(value: Value, rank: int, known: Mapping[int, Size]) -> tuple[Size, ...]:
    """List the lengths of a result: those that are known, and what its type says of the others.

    The others must not depend on the batch.
    """
    kind = value.type
    shape = kind.shape if isinstance(kind, TensorType) else None
    declared = shape if shape is not None and len(shape) == rank else (None,) * rank
    return tuple(
        known[axis]
        if axis in known
        else (unknown_length(value.name, axis) if dim is None else length_of(dim))
        for axis, dim in enumerate(declared)
    )
