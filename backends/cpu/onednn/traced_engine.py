"""The engine of a trace: it makes descriptors that remember, and shares those of equal calls."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from typing import Any

from ....runtime.graph import DType
from ....runtime.graph.sym_int import Trace, has_sym_ints, identity_of
from ....runtime.lowering.strides import row_major
from .bindings import Attributes, Desc, Descs, Engine, Numbers, PrimitiveDesc
from .open_matmul import open_matmul
from .traced import TracedDesc, TracedPrimitiveDesc, hints_of, is_traced

__all__ = ["TracedEngine"]


class TracedEngine(Engine):
    """The process's engine for one trace; not thread-safe."""

    is_traced = True

    def __init__(self, engine: Engine, trace: Trace) -> None:
        self.plain, self.trace = engine, trace
        self.path, self.library, self.version = engine.path, engine.library, engine.version
        self._as_parameter_ = engine._as_parameter_
        self._made = trace.shared()

    def desc(self, dims: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> Desc:
        given, steps = tuple(dims), tuple(row_major(dims) if strides is None else strides)
        if not has_sym_ints(given) and not has_sym_ints(steps):
            return self.plain.desc(given, dtype, steps)
        key = "desc", dtype, *_places(given), *_places(steps)
        if key not in self._made:
            self._made[key] = TracedDesc(
                self.trace,
                self.plain.desc(hints_of(given), dtype, hints_of(steps)),
                lambda replay: replay.engine.desc(
                    replay.numbers(given), dtype, replay.numbers(steps)
                ),
                given,
                strides=steps,
            )
        made: Desc = self._made[key]
        return made

    def any_desc(self, dims: Sequence[int], dtype: DType) -> Desc:
        given = tuple(dims)
        if not has_sym_ints(given):
            return self.plain.any_desc(given, dtype)
        key = "any", dtype, *_places(given)
        if key not in self._made:
            self._made[key] = TracedDesc(
                self.trace,
                self.plain.any_desc(hints_of(given), dtype),
                lambda replay: replay.engine.any_desc(replay.numbers(given), dtype),
                given,
            )
        made: Desc = self._made[key]
        return made

    def primitive_desc(self, call: str, *arguments: Any) -> PrimitiveDesc:
        if not any(map(is_traced, arguments)):
            return self.plain.primitive_desc(call, *arguments)
        key = call, *map(_key, arguments)
        if key not in self._made:
            raw = self.plain.primitive_desc(call, *arguments)
            traced = TracedPrimitiveDesc(self.trace, raw)
            is_matmul = call == "matmul"
            self._made[key] = open_matmul(self.plain, traced, arguments) if is_matmul else traced
        made: PrimitiveDesc = self._made[key]
        return made


def _places(numbers: Sequence[int]) -> list[Hashable]:
    """Tell SymInts apart by their place, without asking for their numbers."""
    return [len(numbers), *map(identity_of, numbers)]


def _key(argument: Any) -> Hashable:
    """Tell the arguments of a call apart; equal keys describe the same primitive."""
    if isinstance(argument, TracedDesc):
        return "traced", id(argument)
    if isinstance(argument, Descs):
        return tuple(map(_key, argument.descs))
    if isinstance(argument, Numbers):
        return tuple(map(identity_of, argument.numbers))
    if isinstance(argument, Attributes):
        steps = tuple((op, item and _key(item)) for op, item in argument.post_ops)
        return steps, argument.scale_mask, argument.scale_count
    if isinstance(argument, ctypes._SimpleCData):
        argument = argument.value
    if isinstance(argument, Engine):
        return "engine"
    found: Hashable = argument
    return found
