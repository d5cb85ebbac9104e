"""Constants whose lengths or numbers follow from SymInts: shapes, ranges, slices of tables.

Like a SymInt it holds what it is in this run (``hint``) and how it is made for other lengths. What
is asked of it beyond its type holds all that it depends on to the numbers of this run, so it may go
wherever an array may.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from .sym_int import Trace, has_sym_ints, identity_of, is_sym_int, plain_int

__all__ = [
    "ArrayReplay",
    "SymArray",
    "array_of_lengths",
    "array_of_numbers",
    "decide_by",
    "derived_arrays",
    "has_numbers",
    "hint_of",
    "integers_in",
    "is_symbolic",
    "key_of",
]

Array = np.ndarray[Any, Any]
Recipe = Callable[["ArrayReplay"], Array]


class ArrayReplay(Protocol):
    """Tells what stands for a number or an array for other lengths."""

    def number(self, number: Any) -> Any: ...
    def array(self, array: Array) -> Array: ...


class SymArray:
    """An array of a trace; ``isinstance`` takes it for numpy's. Made by this module's functions."""

    __slots__ = ("_depends", "dtype", "elements", "hint", "recipe", "shape")

    def __init__(
        self,
        hint: Array,
        shape: Sequence[int],
        recipe: Recipe,
        depends: Sequence[Any],
        elements: Sequence[Any] | None = None,
    ) -> None:
        self.hint, self.dtype = hint, hint.dtype
        self.shape, self.recipe = tuple(shape), recipe
        self.elements = None if elements is None else tuple(elements)
        """The numbers of a list, SymInts among them; None where they are not known one by one."""
        self._depends = tuple(depends)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Array]:  # type: ignore[override]
        return np.ndarray

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * int(self.dtype.itemsize)

    @property
    def trace(self) -> Trace:
        """The trace of the lengths that it depends on."""
        found: Trace = self._depends[0].trace
        return found

    def exact(self) -> Array:
        """Return the array of this run, and hold that it is this one."""
        for item in self._depends:
            item.exact()
        return self.hint

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.exact(), dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact(), name)

    def __getitem__(self, key: Any) -> Any:
        if self.elements is not None and self.ndim == 1 and isinstance(key, int):
            return self.elements[key]
        return self.exact()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.exact() if self.elements is None else self.elements)

    def __len__(self) -> int:
        return int(self.shape[0])

    def reshape(self, *shape: Any) -> Any:
        """Return the list itself where that is asked for, else as numpy."""
        if self.elements is not None and shape in ((-1,), ((-1,),)):
            return array_of_numbers(self.elements, is_scalar=False, dtype=self.dtype)
        return self.exact().reshape(*shape)

    def item(self, *key: Any) -> Any:
        """Return the only number."""
        if self.elements is not None and len(self.elements) == 1 and not key:
            return self.elements[0]
        return self.exact().item(*key)

    def tolist(self) -> Any:
        """Return the numbers of a list, SymInts among them, else as numpy."""
        if self.elements is None:
            return self.exact().tolist()
        return list(self.elements) if self.ndim else self.elements[0]

    def __repr__(self) -> str:
        return f"<SymArray {self.dtype} of rank {self.ndim}>"


def _exact_operation(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: SymArray, other: Any) -> Any:
        return function(self.exact(), np.asarray(other))

    def backward(self: SymArray, other: Any) -> Any:
        return function(np.asarray(other), self.exact())

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or"):
    _forward, _backward = _exact_operation(getattr(operator, f"__{_name}__"))
    setattr(SymArray, f"__{_name}__", _forward)
    setattr(SymArray, f"__r{_name}__", _backward)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SymArray, f"__{_name}__", _exact_operation(getattr(operator, _name))[0])


def is_symbolic(array: object) -> bool:
    """True for an array that depends on free lengths."""
    return type(array) is SymArray


def has_numbers(array: Any) -> bool:
    """True for a SymArray whose numbers are known one by one."""
    return array.elements is not None


def decide_by(array: Any, decide: Callable[[Array], bool]) -> bool:
    """Ask something of an array's content; of a SymArray's the answer is held as a guard."""
    if type(array) is not SymArray:
        return decide(array)
    answer = decide(array.hint)
    trace = array.trace
    trace.hold(lambda replay: decide(replay.array(array)), answer)
    return answer


def hint_of(array: Any) -> Array:
    """Return the array of this run, whatever may come of it for other lengths."""
    hint: Array = array.hint if type(array) is SymArray else array
    return hint


def key_of(array: Any) -> Hashable:
    """Tell arrays of a trace apart without asking for their numbers."""
    if array.elements is None:
        return "derived", id(array)
    return "numbers", str(array.dtype), array.ndim, *map(identity_of, array.elements)


def integers_in(array: Any) -> list[int]:
    """Return the integers of an array, flat; SymInts stay what they are."""
    numbers = array.reshape(-1)
    return [number if isinstance(number, int) else int(number) for number in numbers]


def array_of_numbers(numbers: Sequence[Any], *, is_scalar: bool, dtype: Any) -> Any:
    """Return a list of numbers, or a single one, as an array; SymInts may be among them."""
    if not has_sym_ints(numbers):
        return np.array(numbers[0] if is_scalar else numbers, dtype)
    given = tuple(numbers)

    def make(replay: ArrayReplay) -> Array:
        found = [replay.number(number) for number in given]
        return np.array(found[0] if is_scalar else found, dtype)

    hints = [plain_int(number) for number in given]
    hint = np.array(hints[0] if is_scalar else hints, dtype)
    depends = [number for number in given if is_sym_int(number)]
    return SymArray(hint, hint.shape, make, depends, given)


def array_of_lengths(
    make: Callable[..., Array], lengths: Sequence[int], shape: Sequence[int]
) -> Any:
    """Make an array of this shape from lengths, which may be SymInts."""
    given = tuple(lengths)
    depends = [length for length in given if is_sym_int(length)]
    hint = make(*map(plain_int, given))
    if not depends:
        return hint
    return SymArray(hint, shape, lambda replay: make(*map(replay.number, given)), depends)


def derived_arrays(
    compute: Callable[..., Sequence[Array]],
    inputs: Sequence[Any],
    shapes: Sequence[Sequence[Any]],
) -> list[Any]:
    """Compute arrays from arrays of which some are SymArrays; ``shapes`` are those of the results.

    ``compute`` is called again, on any thread, for other lengths; None among inputs stays None.
    """
    given = tuple(inputs)
    hints = compute(*[array.hint if type(array) is SymArray else array for array in given])
    depends: list[Any] = [array for array in given if type(array) is SymArray]

    def recipe_of(place: int) -> Recipe:
        def make(replay: ArrayReplay) -> Array:
            arrays = [None if array is None else replay.array(array) for array in given]
            made = compute(*arrays)[place]
            wanted = tuple([replay.number(length) for length in shapes[place]])
            if made.shape != wanted:
                raise ArithmeticError(f"{made.shape} is made, and not {wanted}")
            return made

        return make

    return [
        SymArray(hint, shape, recipe_of(place), depends)
        for place, (hint, shape) in enumerate(zip(hints, shapes, strict=True))
    ]
