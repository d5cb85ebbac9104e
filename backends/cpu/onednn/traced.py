"""oneDNN's descriptors in a trace: made with lengths that remember, and made again for others.

A plan builder that is given SymInts (runtime/graph/sym_int.py) is given this engine, too. Where a
length is a SymInt, what it makes keeps how it was made. What code reads of it is a number that a
replay reads again; what code decides by it (is it blocked, are two equal, which implementation is
it) is a guard. Equal calls of one trace share what they make, and so do those of its replays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

from ....runtime.graph import DType
from ....runtime.graph.sym_int import (
    SymInt,
    Trace,
    has_sym_ints,
    is_sym_int,
    plain_int,
)
from .bindings import (
    Attributes,
    Desc,
    Descs,
    Engine,
    Numbers,
    OneDnnError,
    Primitive,
    PrimitiveDesc,
)

__all__ = ["OneDnnReplay", "TracedDesc", "TracedPrimitiveDesc", "is_traced"]

Recipe = Callable[["OneDnnReplay"], Desc]


class TracedDesc(Desc):
    """A descriptor whose lengths depend on free ones; ``recipe`` makes it again for others.

    ``dims`` are its lengths, and ``likely_dims`` those that it has unless a replay finds others;
    ``strides`` are those of one that was made of lengths and strides alone.
    """

    __slots__ = ("_dims", "_likely_dims", "_read", "raw", "recipe", "trace")

    def __init__(
        self,
        trace: Trace,
        raw: Desc,
        recipe: Recipe,
        dims: tuple[int, ...] | None = None,
        likely_dims: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.engine, self.handle, self._as_parameter_ = raw.engine, raw.handle, raw._as_parameter_
        self.origin = raw.origin
        self.trace, self.raw, self.recipe = trace, raw, recipe
        self._dims, self._likely_dims = dims, likely_dims
        self._read: dict[str, Any] = {}
        if strides is not None:
            self._read.update(blocking=(strides, ()), offset=0)

    def fixed(self) -> Desc:
        """Return the descriptor of this run, and hold that it is the same in all others."""
        raw = self.raw
        if "fixed" not in self._read:
            self._read["fixed"] = raw
            self.trace.hold(lambda replay: replay.desc(self) == raw, True)
        return raw

    def _held(self, what: str, read: Callable[[Desc], Any]) -> Any:
        if what not in self._read:
            answer = self._read[what] = read(self.raw)
            self.trace.hold(lambda replay: read(replay.desc(self)), answer)
        return self._read[what]

    @property
    def rank(self) -> int:
        if self._dims is not None:
            return len(self._dims)
        rank: int = self._held("rank", lambda desc: desc.rank)
        return rank

    @property
    def dims(self) -> tuple[int, ...]:
        if self._dims is None:
            likely, hints = self._likely_dims, self.raw.dims
            if likely is None:
                self._dims = self.trace.read(
                    lambda replay: (None, _of_rank(replay.desc(self).dims, len(hints))), hints, None
                )
            else:
                self._dims = likely
                self.trace.hold(
                    lambda replay: replay.desc(self).dims == replay.numbers(likely), True
                )
        return self._dims

    @property
    def dtype(self) -> DType:
        return self.raw.dtype

    @property
    def offset(self) -> int:
        offset: int = self._held("offset", lambda desc: desc.offset)
        return offset

    @property
    def blocking(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
        if "blocking" not in self._read:
            self._read["blocking"] = self._read_blocking()
        found: tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None = self._read["blocking"]
        return found

    def _read_blocking(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
        """Read it, as what follows from the lengths where it is dense."""
        blocking = self.raw.blocking
        if blocking is None:
            self.trace.hold(lambda replay: replay.desc(self).blocking is None, True)
            return None
        hints, blocks = blocking
        dense = dense_strides(self.dims, hints, blocks)
        if hints_of(dense) == hints:
            self.trace.hold(
                lambda replay: replay.desc(self).blocking == (replay.numbers(dense), blocks), True
            )
            return dense, blocks

        def read(replay: OneDnnReplay) -> tuple[Any, Sequence[int]]:
            strides, blocks = replay.desc(self).blocking or ((), None)
            return blocks, _of_rank(strides, len(hints))

        return self.trace.read(read, hints, blocks), blocks

    @property
    def size_bytes(self) -> int:
        if "bytes" not in self._read:
            (self._read["bytes"],) = self.trace.read(
                lambda replay: (None, (replay.desc(self).size_bytes,)), (self.raw.size_bytes,), None
            )
        size_bytes: int = self._read["bytes"]
        return size_bytes

    @property
    def is_open(self) -> bool:
        return self.raw.is_open

    def permuted(self, permutation: Sequence[int]) -> Desc:
        order = tuple(permutation)
        made = self.raw.permuted(order)
        return TracedDesc(self.trace, made, lambda replay: replay.desc(self).permuted(order))

    def part(self, dims: Sequence[int], offsets: Sequence[int]) -> Desc:
        made = self.raw.part(hints_of(dims), hints_of(offsets))
        given, places = tuple(dims), tuple(offsets)
        return TracedDesc(
            self.trace,
            made,
            lambda replay: replay.desc(self).part(replay.numbers(given), replay.numbers(places)),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Desc):
            return NotImplemented
        if other is self:
            return True
        answer = self.raw == _raw(other)
        self.trace.hold(lambda replay: replay.desc(self) == replay.desc(other), answer)
        return answer

    def __hash__(self) -> int:
        return hash(self.fixed())


class TracedPrimitiveDesc(PrimitiveDesc):
    """A primitive's descriptor that was made of descriptors of a trace."""

    __slots__ = ("_first", "_read", "key", "raw", "skip_count", "trace")

    def __init__(
        self,
        trace: Trace,
        raw: PrimitiveDesc,
        first: TracedPrimitiveDesc | None = None,
        skip_count: int = 0,
    ) -> None:
        self.engine, self.handle, self._as_parameter_ = raw.engine, raw.handle, raw._as_parameter_
        self.call, self.arguments = raw.call, raw.arguments
        self.thread_count = raw.thread_count
        self.trace, self.raw = trace, raw
        self._first = first
        self.skip_count = skip_count
        """How many of the library's choices were passed over."""
        self.key = id(self.first), skip_count
        """What a replay makes once: the call, and which of its choices."""
        self._read = trace.shared()

    @property
    def first(self) -> TracedPrimitiveDesc:
        """The library's first choice for this call."""
        return self._first or self

    @property
    def implementation(self) -> str:
        name = self.raw.implementation
        self.trace.hold(lambda replay: replay.primitive_desc(self).implementation, name)
        return name

    def desc(self, which: str, index: int = 0) -> Desc:
        made = self._read.get((which, index))
        if made is None:
            raw = self.raw.desc(which, index)
            made = self._read[which, index] = TracedDesc(
                self.trace,
                raw,
                lambda replay: replay.primitive_desc(self).desc(which, index),
                likely_dims=self._given_dims(which, raw.dims),
            )
        found: Desc = made
        return found

    def _given_dims(self, which: str, hints: tuple[int, ...]) -> tuple[int, ...] | None:
        """Find the lengths among those that the call was given, where it is likely."""
        given = [argument for argument in self.arguments if isinstance(argument, Desc)]
        likely = [given[place] for name, place in _PLACES if name == which and len(given) > 1]
        for desc in (*likely, *given):
            if _raw(desc).dims == hints:
                return desc.dims
        return None

    def argument(self, role: int) -> tuple[DType | None, int]:
        if role not in self._read:
            dtype, size_bytes = self.raw.argument(role)

            def read(replay: OneDnnReplay) -> tuple[DType | None, Sequence[int]]:
                dtype, size_bytes = replay.primitive_desc(self).argument(role)
                return dtype, (size_bytes,)

            self._read[role] = dtype, *self.trace.read(read, (size_bytes,), dtype)
        found: tuple[DType | None, int] = self._read[role]
        return found

    def others(self) -> Iterator[PrimitiveDesc]:
        skipped = 0
        for skipped, raw in enumerate(self.raw.others(), 1):
            other = TracedPrimitiveDesc(self.trace, raw, self.first, skipped)
            self.trace.hold(lambda replay, other=other: replay.is_offered(other), True)  # type: ignore[misc]
            yield other
        last = TracedPrimitiveDesc(self.trace, self.raw, self.first, skipped + 1)
        self.trace.hold(lambda replay: replay.is_offered(last), False)

    def create(self) -> Primitive:
        return self.raw.create()


class OneDnnReplay:
    """Makes the objects of a trace again for the numbers in ``values``; not thread-safe.

    Raises OneDnnError where the library refuses them.
    """

    def __init__(self, engine: Engine, values: list[Any]) -> None:
        self.engine = engine
        self._values = values
        self._made: dict[int, Any] = {}
        self._chosen: dict[tuple[int, int], PrimitiveDesc] = {}
        self._primitives: dict[int, Primitive] = {}

    def number(self, number: int | SymInt) -> int:
        """Return what stands for a number here."""
        if is_sym_int(number):
            value: int = self._values[number.place]
            return value
        return cast(int, number)

    def numbers(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return what stands for each of these numbers here."""
        values, given = self._values, cast(Sequence[Any], numbers)
        return tuple([values[item.place] if type(item) is SymInt else item for item in given])

    def desc(self, desc: Desc) -> Desc:
        """Return what stands for a descriptor here."""
        if type(desc) is not TracedDesc:
            return desc
        made = self._made.get(id(desc))
        if made is None:
            made = self._made[id(desc)] = desc.recipe(self)
        found: Desc = made
        return found

    def primitive_desc(self, desc: PrimitiveDesc) -> PrimitiveDesc:
        """Return what stands for a primitive's descriptor here."""
        if not isinstance(desc, TracedPrimitiveDesc):
            return desc
        made = self._chosen.get(desc.key)
        if made is None:
            made = self.engine.primitive_desc(desc.call, *map(self._argument, desc.arguments))
            if desc.skip_count:
                made = next(islice(made.others(), desc.skip_count - 1, None), None)
            if made is None:
                raise OneDnnError(f"next implementation of {desc.call}", 4)
            self._chosen[desc.key] = made
        found: PrimitiveDesc = made
        return found

    def is_offered(self, desc: TracedPrimitiveDesc) -> bool:
        """True if the library has that number of choices."""
        try:
            self.primitive_desc(desc)
        except OneDnnError:
            return False
        return True

    def keep_primitives(
        self, descs: Sequence[TracedPrimitiveDesc], made: Sequence[Primitive]
    ) -> None:
        """Take primitives that were compiled of what stands for these descriptors here."""
        self._primitives.update(zip(map(id, descs), made, strict=True))

    def primitive(self, desc: PrimitiveDesc, made: Primitive) -> Primitive:
        """Return what stands for a primitive here, which ``desc`` describes in the trace.

        One that serves all lengths stands for itself.
        """
        if type(desc) is not TracedPrimitiveDesc:
            return made
        found = self._primitives.get(id(desc))
        if found is None:
            found = self._primitives[id(desc)] = self.primitive_desc(desc).create()
        return found

    def _argument(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is TracedDesc:
            return self.desc(argument)
        if issubclass(kind, Engine):
            return self.engine
        if kind is Numbers:
            return Numbers(self.numbers(argument.numbers))
        if kind is Descs:
            return Descs([self.desc(item) for item in argument.descs])
        if kind is Attributes and is_traced(argument):
            made = self._made.get(id(argument))
            if made is None:
                steps = [(op, item and self.desc(item)) for op, item in argument.post_ops]
                made = self._made[id(argument)] = Attributes(
                    self.engine, steps, argument.scale_mask, argument.scale_count
                )
            return made
        return argument


_PLACES = (("src", 0), ("weights", 1), ("dst", -1))
"""Where descriptors stand among those that calls are given."""


def dense_strides(
    dims: Sequence[int], order: Sequence[int], blocks: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the strides of dense memory whose axes lie in the order of these strides. Pure."""
    lengths = list(dims)
    stride = 1
    for axis, length in blocks:
        lengths[axis] = -(-lengths[axis] // length)
        stride *= length
    strides = [stride] * len(lengths)
    for axis in sorted(range(len(lengths)), key=lambda axis: (order[axis], -axis)):
        strides[axis] = stride
        stride *= lengths[axis]
    return tuple(strides)


def _of_rank(numbers: Sequence[int], rank: int) -> Sequence[int]:
    if len(numbers) != rank:
        raise OneDnnError(f"descriptor of {len(numbers)} axes", 2)
    return numbers


def _raw(desc: Desc) -> Desc:
    return desc.raw if isinstance(desc, TracedDesc) else desc


def hints_of(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of this run, for what a replay makes again."""
    return tuple([plain_int(number) for number in numbers])


def is_traced(argument: object) -> bool:
    """True for an argument of a call that depends on free lengths."""
    if isinstance(argument, Attributes):
        return any(type(item) is TracedDesc for _, item in argument.post_ops)
    if isinstance(argument, Descs):
        return any(type(item) is TracedDesc for item in argument.descs)
    if isinstance(argument, Numbers):
        return has_sym_ints(argument.numbers)
    return type(argument) is TracedDesc
