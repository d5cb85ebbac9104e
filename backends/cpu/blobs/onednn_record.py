"""oneDNN's descriptors in a blob: how each was made, to be made again by the same library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....errors import BlobError, NotSupportedError
from ....runtime.blobs.tensors_record import damaged, dtype_of, lengths_of
from ....runtime.graph.sym_int import plain_int
from ..onednn.bindings import (
    Attributes,
    Desc,
    Descs,
    Engine,
    Numbers,
    OneDnnError,
    PrimitiveDesc,
)
from ..onednn.numbers import QUERY_MD
from ..onednn.post_ops import BINARY, UNARY, PostOp
from .primitive_calls import NUMBERS, find_misfit, letter_of

__all__ = ["MOST_THREADS", "OneDnnReader", "OneDnnWriter"]

MOST_THREADS = 4096


class OneDnnWriter:
    """Numbers descriptors, each after those that it is made from; equal ones are one."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._places: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []

    def desc(self, desc: Desc) -> int:
        """Return the number of a memory descriptor; NotSupportedError for one of unknown origin."""
        return self._numbered(desc, self._desc_row)

    def primitive_desc(self, desc: PrimitiveDesc) -> int:
        """Return the number of a primitive's descriptor."""
        return self._numbered(desc, self._primitive_row)

    def _numbered(self, item: Any, row_of: Any) -> int:
        known = self._numbers.get(id(item))
        if known is not None:
            return known
        row = row_of(item)
        self._held.append(item)
        number = self._places.setdefault(repr(row), len(self.rows))
        self._numbers[id(item)] = number
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def _desc_row(self, desc: Desc) -> list[Any]:
        if desc.origin is None:
            raise NotSupportedError(f"{desc} is not known by how it was made")
        how, *given = desc.origin
        if how == "plain":
            dims, dtype, strides = given
            return ["plain", list(dims), dtype.label, list(strides)]
        if how == "open":
            dims, dtype = given
            return ["open", list(dims), dtype.label]
        if how == "of":
            made, which, index = given
            return ["of", self.primitive_desc(made), which, index, desc.size_bytes]
        source, *numbers = given
        return [how, self.desc(source), *map(list, numbers)]

    def _primitive_row(self, made: PrimitiveDesc) -> list[Any]:
        arguments = [self._argument(argument) for argument in made.arguments]
        return ["primitive", made.call, arguments, made.implementation, made.thread_count]

    def _argument(self, argument: Any) -> Any:
        letter = letter_of(argument)
        if letter == "d":
            return None
        if letter == "e":
            return ["e"]
        if letter == "D":
            return ["D", self.desc(argument)]
        if letter == "S":
            return ["S", [self.desc(desc) for desc in argument.descs]]
        if letter == "N":
            return ["N", [plain_int(number) for number in argument.numbers]]
        if letter == "A":
            steps = [
                [*post_op, None if operand is None else self.desc(operand)]
                for post_op, operand in argument.post_ops
            ]
            return ["A", [_finite(steps), argument.scale_mask, argument.scale_count]]
        if letter == "f":
            return ["f", argument.value if math.isfinite(argument.value) else str(argument.value)]
        if letter in NUMBERS:
            return [letter, argument.value]
        raise NotSupportedError(f"a {type(argument).__name__} of a primitive is in no blob")


class OneDnnReader:
    """Makes descriptors again, in order, each for as many threads as it was made for."""

    def __init__(self, engine: Engine, rows: Any) -> None:
        if not isinstance(rows, list):
            raise damaged("its descriptors are no list")
        self._engine = engine
        self._made: list[Desc | PrimitiveDesc] = []
        for row in rows:
            try:
                self._made.append(self._make(row))
            except OneDnnError as error:
                raise BlobError(
                    f"this machine's oneDNN does not make a primitive of the blob: {error}; load "
                    f"the model and export it here"
                ) from error

    def desc(self, number: Any) -> Desc:
        """Return a memory descriptor by its number."""
        found = self._at(number)
        if not isinstance(found, Desc):
            raise damaged(f"descriptor {number} is a primitive's")
        return found

    def primitive_desc(self, number: Any) -> PrimitiveDesc:
        """Return a primitive's descriptor by its number."""
        found = self._at(number)
        if not isinstance(found, PrimitiveDesc):
            raise damaged(f"descriptor {number} is not a primitive's")
        return found

    def _at(self, number: Any) -> Desc | PrimitiveDesc:
        if type(number) is not int or not 0 <= number < len(self._made):
            raise damaged(f"there is no descriptor {number!r:.20} yet")
        return self._made[number]

    def _make(self, row: Sequence[Any]) -> Desc | PrimitiveDesc:
        how, *given = row
        engine = self._engine
        if how == "plain":
            dims, label, strides = given
            lengths, steps = lengths_of(dims, how), lengths_of(strides, how)
            if len(lengths) != len(steps):
                raise damaged(f"a descriptor of {len(lengths)} axes has {len(steps)} strides")
            return engine.desc(lengths, dtype_of(label), steps)
        if how == "open":
            dims, label = given
            return engine.any_desc(lengths_of(dims, how), dtype_of(label))
        if how == "of":
            return self._of(*given)
        if how == "permuted":
            source, permutation = self.desc(given[0]), lengths_of(given[1], how)
            if sorted(permutation) != list(range(source.rank)):
                raise damaged(f"{permutation} is no order of {source.rank} axes")
            return source.permuted(permutation)
        if how == "part":
            source, dims, offsets = self.desc(given[0]), *(lengths_of(x, how) for x in given[1:])
            if not len(dims) == len(offsets) == source.rank:
                raise damaged(f"a part of {source.rank} axes has {len(dims)} lengths")
            return source.part(dims, offsets)
        if how == "primitive":
            return self._primitive(*given)
        raise damaged(f"there is no descriptor of kind {how!r:.20}")

    def _of(self, number: Any, which: Any, index: Any, size_bytes: Any) -> Desc:
        made = self.primitive_desc(number)
        if which not in QUERY_MD:
            raise damaged(f"a primitive has no {which!r:.20}")
        if type(index) is not int or not 0 <= index < 1 << 20:
            raise damaged(f"a primitive has no {which} {index!r:.20}")
        desc = made.desc(which, index)
        if desc.size_bytes != size_bytes:
            raise BlobError(
                f"{made.implementation} of this machine's oneDNN lays out its {which} otherwise "
                f"than the blob has it; load the model and export it here"
            )
        return desc

    def _primitive(
        self, call: Any, records: Any, implementation: Any, thread_count: Any
    ) -> PrimitiveDesc:
        if not isinstance(call, str) or not isinstance(records, list):
            raise damaged("a primitive has no name or no arguments")
        if type(thread_count) is not int or not 1 <= thread_count <= MOST_THREADS:
            raise damaged(f"a primitive is for {thread_count!r:.20} threads")
        arguments = [self._argument(record) for record in records]
        misfit = find_misfit(call, arguments)
        if misfit is not None:
            raise damaged(misfit)
        with self._engine.with_threads(thread_count):
            first = self._engine.primitive_desc(call, *arguments)
            if first.implementation == implementation:
                return first
            found = next(
                (item for item in first.others() if item.implementation == implementation), None
            )
        if found is None:
            raise BlobError(
                f"this machine's oneDNN has no {implementation!r:.60} for a {call}; load the model "
                f"and export it here"
            )
        return found

    def _argument(self, record: Any) -> Any:
        if record is None:
            return None
        letter, *rest = record
        if letter == "e":
            return self._engine
        (content,) = rest
        if letter == "D":
            return self.desc(content)
        if letter == "S":
            return Descs([self.desc(number) for number in content])
        if letter == "N":
            if not all(type(number) is int and abs(number) < 1 << 31 for number in content):
                raise damaged("a primitive has numbers beyond 32 bits")
            return Numbers(content)
        if letter == "A":
            steps, mask, count = content
            if not all(type(item) is int and 0 <= item < 1 << 31 for item in (mask, count)):
                raise damaged("scales of weights are no numbers")
            return Attributes(self._engine, [self._post_op(step) for step in steps], mask, count)
        if letter == "f":
            return NUMBERS["f"](float(content))
        if letter in NUMBERS and type(content) is int and abs(content) < 1 << 31:
            return NUMBERS[letter](content)
        raise damaged(f"a primitive takes no {letter!r:.20}")

    def _post_op(self, step: Any) -> tuple[PostOp, Desc | None]:
        name, alpha, beta, operand, desc = step
        if name not in UNARY and name not in BINARY:
            raise damaged(f"there is no post-op {name!r:.20}")
        if (name in BINARY and name != "sum") != (desc is not None):
            raise damaged(f"the post-op {name!r} has an operand too many or too few")
        post_op = PostOp(name, float(alpha), float(beta), operand)
        return post_op, None if desc is None else self.desc(desc)


def _finite(content: Any) -> Any:
    if isinstance(content, list):
        return [_finite(item) for item in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
