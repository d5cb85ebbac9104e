"""UserOperation: a user's function on arrays of the device, in the place of a kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....errors import TensorError
from ....runtime.graph import shape_text
from ....runtime.operators.kernel_failure import explain
from .library_operation import LibraryOperation

__all__ = ["ArrayForm", "UserOperation"]

_numbers = itertools.count(1)


@dataclass(frozen=True)
class ArrayForm:
    """Shape and element type of an array of the device."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def example(self) -> np.ndarray[Any, Any]:
        """An array of it that takes no memory."""
        return np.broadcast_to(np.empty((), self.dtype), self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{shape_text(self.shape)}"


@dataclass(frozen=True)
class UserOperation(LibraryOperation):
    """A function that is called each time it is launched, and enqueues what it does.

    Its arguments are the inputs that are given, then the outputs that are used. No two are equal.
    """

    function: Callable[..., Any] = field(compare=False)
    attributes: Mapping[str, Any] = field(compare=False)
    inputs: tuple[ArrayForm | None, ...]
    """None for an optional input that is not given."""
    outputs: tuple[tuple[int, ArrayForm], ...]
    """Those that are used, each with its place in what the function returns."""
    node: str

    @classmethod
    def of_function(
        cls,
        function: Callable[..., Any],
        attributes: Mapping[str, Any],
        inputs: Sequence[ArrayForm | None],
        outputs: Sequence[tuple[int, ArrayForm]],
        *,
        node: str,
        op: str,
    ) -> UserOperation:
        """Make one with a name of its own."""
        number = (("number", next(_numbers)),)
        return cls(
            "user", op, number, function, dict(attributes), tuple(inputs), tuple(outputs), node
        )

    @property
    def forms(self) -> list[ArrayForm]:
        """What its arguments are, in order."""
        given = [form for form in self.inputs if form is not None]
        return [*given, *(form for _, form in self.outputs)]

    def call(self, arrays: Sequence[Any]) -> None:
        """Call it, and copy what it returns to the outputs; ``arrays`` are its arguments.

        Raises TensorError, with the node, for what it raises and for wrong results, and DeviceError
        where memory runs out.
        """
        reads = iter(arrays)
        inputs = [None if form is None else next(reads) for form in self.inputs]
        targets = list(reads)
        try:
            made = self.function(*inputs, **self.attributes)
            results = made if isinstance(made, tuple) else (made,)
            for (place, form), target in zip(self.outputs, targets, strict=True):
                target[...] = _checked(results, place, form, type(target))
        except Exception as error:
            given = [None if form is None else form.example for form in self.inputs]
            raise explain(error, self.node, self.label, given) from error


def _checked(results: tuple[Any, ...], place: int, form: ArrayForm, kind: type[Any]) -> Any:
    if place >= len(results):
        raise TensorError(
            f"it gave {len(results)} outputs where output {place} is used, too; it has to return "
            f"a tuple of all"
        )
    result: Any = results[place]
    if not isinstance(result, kind):
        wanted = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        raise TensorError(f"output {place} is a {type(result).__name__}, and a {wanted} is wanted")
    found = ArrayForm(tuple(result.shape), np.dtype(result.dtype))
    if found != form:
        raise TensorError(f"output {place} is {found}, and was to be {form}")
    return result
