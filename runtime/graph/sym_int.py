"""Integers that remember how they were computed, and the decisions that were made by them.

Theory of operation. Code that computes with lengths is run once with SymInts in place of integers.
Each holds the number of this run (the hint) and its place in a trace: the list of the operations
that led from the free lengths to it. A comparison answers for the hint, and adds a guard: the
answer, by which the code went on. Whatever the run has made is then right for all lengths for which
every guard gives the same answer. A SymInt is no ``int``, so that no C function can take its number
unnoticed: those that ask for one (``__index__``, hashing, printing) add the guard that it is this
very number. Terms: PyTorch's symbolic shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeGuard, cast

from ...errors import AioInferError

__all__ = [
    "ClosedTrace",
    "SymInt",
    "Trace",
    "computed",
    "has_sym_ints",
    "identity_of",
    "is_sym_int",
    "larger",
    "plain_int",
]

_Function = Callable[[Any, Any], Any]
_GUARD, _COMPUTE, _READ = range(3)


class Trace:
    """Records operations and guards in the order in which they are met. Not thread-safe.

    Its numbers refer to it, and what it has recorded refers to them: ``close`` unties that.
    """

    def __init__(self, hints: Sequence[int]) -> None:
        self._hints: list[Any] = list(hints)
        self._program: list[tuple[int, Any, int, int, Any]] = []
        self._known: dict[tuple[Any, int, int], Any] = {}
        self._constants: dict[int, int] = {}
        self._shared: list[dict[Any, Any]] = []
        self._free_count = len(hints)
        self.is_closed = False

    def variables(self) -> list[SymInt]:
        """Return the free lengths, in the order of their hints."""
        return [SymInt(self, place, self._hints[place]) for place in range(self._free_count)]

    def shared(self) -> dict[Any, Any]:
        """Make a dictionary for what is shared while this records; empty afterwards."""
        made: dict[Any, Any] = {}
        self._shared.append(made)
        return made

    def close(self) -> ClosedTrace:
        """End the recording; from now on a SymInt of it that is asked for a number raises."""
        self.is_closed = True
        self._known.clear()
        for shared in self._shared:
            shared.clear()
        program, self._program = self._program, []
        return ClosedTrace(self._hints, self._free_count, program)

    def constant(self, number: int) -> int:
        """Return the place of a number that is always the same."""
        place = self._constants.get(number)
        if place is None:
            place = self._constants[number] = self._add(number)
        return place

    def compute(self, function: _Function, left: int, right: int) -> SymInt:
        """Note an operation on the numbers at two places."""
        key = function, left, right
        found = self._known.get(key)
        if found is None:
            self._check_open()
            hint = function(self._hints[left], self._hints[right])
            place = self._add(hint)
            found = self._known[key] = SymInt(self, place, hint)
            self._program.append((_COMPUTE, function, left, right, place))
        made: SymInt = found
        return made

    def decide(self, function: _Function, left: int, right: int) -> bool:
        """Answer by the hints at two places, and hold the answer as a guard."""
        key = function, left, right
        known = self._known.get(key)
        if known is None:
            self._check_open()
            known = self._known[key] = function(self._hints[left], self._hints[right])
            self._program.append((_GUARD, function, left, right, known))
        return bool(known)

    def read(
        self, reader: Callable[[Any], tuple[Any, Sequence[int]]], hints: Sequence[int], same: Any
    ) -> tuple[Any, ...]:
        """Note numbers that ``reader`` finds in what a replay has made so far.

        It returns them behind what has to be the ``same``, which is a guard.
        """
        self._check_open()
        first = len(self._hints)
        self._hints += hints
        self._program.append((_READ, reader, first, first + len(hints), same))
        return tuple([SymInt(self, first + index, hint) for index, hint in enumerate(hints)])

    def hold(self, reader: Callable[[Any], Any], answer: object) -> None:
        """Hold as a guard what ``reader`` finds in what a replay has made so far."""
        self._check_open()
        self._program.append((_GUARD, reader, -1, 0, answer))

    def _add(self, hint: Any) -> int:
        self._hints.append(hint)
        return len(self._hints) - 1

    def _check_open(self) -> None:
        if self.is_closed:
            raise AioInferError("a length of a finished trace was asked for its number")


class ClosedTrace:
    """What a trace has recorded. Thread-safe; freed with all that it was recorded of."""

    def __init__(
        self, hints: list[Any], free_count: int, program: list[tuple[int, Any, int, int, Any]]
    ) -> None:
        self._hints, self._free_count, self._program = hints, free_count, program

    def values_for(self, free: Sequence[int], replay: Callable[[list[Any]], Any]) -> Any:
        """Compute all numbers for other free lengths; None where a guard answers otherwise.

        ``replay`` is given the list of values, by place, which is filled from now on, and returns
        what readers are called with, and this method returns.
        """
        values = self._hints.copy()
        values[: self._free_count] = free
        made = replay(values)
        try:
            for kind, function, left, right, result in self._program:
                if kind == _COMPUTE:
                    values[result] = function(values[left], values[right])
                elif kind == _READ:
                    same, values[left:right] = function(made)
                    if same != result:
                        return None
                elif left < 0:
                    if function(made) != result:
                        return None
                elif function(values[left], values[right]) != result:
                    return None
        except ArithmeticError:
            return None
        return made


class SymInt:
    """An integer of a trace; ``isinstance`` takes it for an int. Compares and computes as one."""

    __slots__ = ("hint", "place", "trace")

    def __init__(self, trace: Trace, place: int, hint: int) -> None:
        self.trace, self.place, self.hint = trace, place, hint

    @property  # type: ignore[misc]
    def __class__(self) -> type[int]:  # type: ignore[override]
        return int

    def exact(self) -> int:
        """Return the number, and hold that it is this one."""
        trace = self.trace
        if not trace.decide(operator.eq, self.place, trace.constant(self.hint)):
            raise AioInferError("a trace has lost its numbers")
        return self.hint

    __index__ = __int__ = __trunc__ = exact

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        exact = [item.exact() if is_sym_int(item) else item for item in inputs]
        return getattr(ufunc, method)(*exact, **options)

    def __float__(self) -> float:
        return float(self.exact())

    def __bool__(self) -> bool:
        return self.trace.decide(operator.ne, self.place, self.trace.constant(0))

    def __hash__(self) -> int:
        return hash(self.exact())

    def __str__(self) -> str:
        return str(self.hint if self.trace.is_closed else self.exact())

    def __format__(self, spec: str) -> str:
        return format(self.exact(), spec)

    def __repr__(self) -> str:
        return str(self)

    def __pos__(self) -> SymInt:
        return self

    def __neg__(self) -> SymInt:
        return self.trace.compute(operator.sub, self.trace.constant(0), self.place)

    def __abs__(self) -> Any:
        return -self if self.trace.decide(operator.lt, self.place, self.trace.constant(0)) else self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self.exact() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.exact()

    def bit_length(self) -> int:
        """As that of an int."""
        return self.exact().bit_length()


def _other(trace: Trace, other: Any) -> int | None:
    """Return the place of the other operand of an operation; None for what is no integer."""
    if is_sym_int(other):
        return other.place
    return trace.constant(int(other)) if type(other) in (int, bool) else None


def _operation(function: _Function, neutral: int | None) -> tuple[Any, Any]:
    def forward(self: SymInt, other: Any) -> Any:
        if neutral is not None and type(other) is int and other == neutral:
            return self
        place = _other(self.trace, other)
        if place is None:
            return _of_other_kind(function, other, lambda known: function(self, known), self)
        return self.trace.compute(function, self.place, place)

    def turned(right: Any, left: Any) -> Any:
        return function(left, right)

    def backward(self: SymInt, other: Any) -> Any:
        if neutral is not None and function in _COMMUTATIVE:
            return forward(self, other)
        place = _other(self.trace, other)
        if place is None:
            return _of_other_kind(turned, other, lambda known: function(known, self), self)
        return self.trace.compute(function, place, self.place)

    return forward, backward


def _comparison(function: _Function, of_same: bool) -> Any:
    def compare(self: SymInt, other: Any) -> Any:
        place = _other(self.trace, other)
        if place is None:
            return _of_other_kind(function, other, lambda known: function(self, known), self)
        if place == self.place:
            return of_same
        return self.trace.decide(function, self.place, place)

    return compare


def _of_other_kind(
    function: _Function, other: Any, with_int: Callable[[int], Any], number: SymInt
) -> Any:
    """Combine with what is no int: numpy's integers count as ints, floats and arrays ask for it."""
    if isinstance(other, float) or getattr(other, "ndim", False):
        return function(number.exact(), other)
    return with_int(int(other)) if hasattr(other, "__index__") else NotImplemented


_COMMUTATIVE = (operator.add, operator.mul)

for _name, _of, _neutral in (
    ("add", operator.add, 0),
    ("sub", operator.sub, 0),
    ("mul", operator.mul, 1),
    ("floordiv", operator.floordiv, 1),
    ("mod", operator.mod, None),
    ("pow", operator.pow, 1),
    ("lshift", operator.lshift, 0),
    ("rshift", operator.rshift, 0),
    ("and", operator.and_, None),
    ("or", operator.or_, None),
    ("xor", operator.xor, None),
):
    _forward, _backward = _operation(_of, _neutral)
    setattr(SymInt, f"__{_name}__", _forward)
    setattr(SymInt, f"__r{_name}__", _backward)
for _name, _of, _same in (
    ("eq", operator.eq, True),
    ("ne", operator.ne, False),
    ("lt", operator.lt, False),
    ("le", operator.le, True),
    ("gt", operator.gt, False),
    ("ge", operator.ge, True),
):
    setattr(SymInt, f"__{_name}__", _comparison(_of, _same))


def is_sym_int(number: object) -> TypeGuard[SymInt]:
    """True for a SymInt, which ``isinstance`` takes for an int."""
    return type(number) is SymInt


def has_sym_ints(numbers: Sequence[object]) -> bool:
    """True if one of them is a SymInt."""
    return SymInt in map(type, numbers)


def identity_of(number: Hashable) -> Hashable:
    """Tell numbers apart without asking a SymInt for its own: by its place in the trace."""
    return ("free", number.place) if is_sym_int(number) else number


def larger(left: int, right: int) -> int:
    """Return the larger one of two numbers, which decides nothing where one is a SymInt."""
    return computed(max, left, right)


def computed(function: Callable[[int, int], int], left: int, right: int) -> int:
    """Return a pure function of two numbers, whose inside decides nothing where one is a SymInt.

    The function is called with the numbers of each replay, so it is to be the same object each
    time, and is given plain integers.
    """
    for number in (left, right):
        if is_sym_int(number):
            trace = number.trace
            return cast(int, trace.compute(function, _place(trace, left), _place(trace, right)))
    return function(left, right)


def _place(trace: Trace, number: Any) -> int:
    return number.place if is_sym_int(number) else trace.constant(int(number))


def plain_int(number: int) -> int:
    """Return the number of this run; only for what is replayed with the number of each."""
    return number.hint if is_sym_int(number) else number
