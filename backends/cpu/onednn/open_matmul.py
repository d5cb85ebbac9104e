"""Matmuls of a trace that are compiled once, for all lengths.

oneDNN's plain matmul, its choice for float32 on CPUs without AVX-512, reads lengths and strides
that a descriptor leaves open from the memory objects of each run. Measured, it is as quick so as
when it is compiled for them, and gives the same bits; other implementations do not take open
lengths. A caller with open lengths answers for what the library checks otherwise: that the lengths
of the three matrices agree, and that each memory object is described as this call was
(``find_misfit``).
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from typing import Any

from ....runtime.graph import DType
from ....runtime.graph.sym_int import identity_of, is_sym_int
from .bindings import ARG, Attributes, Desc, Engine, OneDnnError, Primitive, PrimitiveDesc
from .descs import dims_of, dtype_number, reach_of
from .traced import TracedDesc, TracedPrimitiveDesc, is_traced

__all__ = ["OpenPrimitiveDesc", "open_matmul"]

_OPEN_LENGTH = -(1 << 63)
"""DNNL_RUNTIME_DIM_VAL."""
_IMPLEMENTATION = "gemm:jit:f32"


class OpenPrimitiveDesc(TracedPrimitiveDesc):
    """A primitive that serves all lengths of a trace; a replay neither describes nor compiles it.

    Its descriptors are those that the call was given, so nothing is read of the library.
    """

    __slots__ = ("_given", "_open", "_primitive")

    is_open = True

    def __init__(
        self, made: TracedPrimitiveDesc, opened: PrimitiveDesc, given: dict[int, Desc]
    ) -> None:
        super().__init__(made.trace, made.raw)
        self._open, self._given = opened, given
        self._primitive: Primitive | None = None

    @property
    def implementation(self) -> str:
        return self.raw.implementation

    def desc(self, which: str, index: int = 0) -> Desc:
        if which == "scratchpad":
            return self._open.desc(which)
        role = index if which == "exec_arg" else _ROLES.get((which, index), -1)
        found = self._given.get(role)
        return self.raw.desc(which, index) if found is None else found

    def argument(self, role: int) -> tuple[DType | None, int]:
        found = self._given.get(role)
        if found is None:
            return self.raw.argument(role)
        dims, strides = found.dims, found.strides
        assert strides is not None
        count = 0 if 0 in dims else reach_of(dims, strides)
        return found.dtype, count * found.dtype.item_bytes

    def create(self) -> Primitive:
        """Compile it, once for all steps and plans."""
        if self._primitive is None:
            self._primitive = self._open.create()
        return self._primitive

    def find_misfit(self, arguments: Sequence[tuple[int, Desc]]) -> str | None:
        for role, desc in arguments:
            given = self._given.get(role)
            if given is not None and _form(desc) != _form(given):
                return f"{self.implementation} takes {given} as argument {role}, not {desc}"
        return None


def open_matmul(
    engine: Engine, made: TracedPrimitiveDesc, arguments: Sequence[Any]
) -> TracedPrimitiveDesc:
    """Return what serves all lengths, or ``made`` itself where this library has no such thing.

    ``arguments`` are those of the call; ``engine`` is the process's own.
    """
    _, src, weights, bias, dst, attributes = arguments
    if made.raw.implementation != _IMPLEMENTATION or is_traced(attributes) or is_traced(bias):
        return made
    if weights.is_open:
        if is_traced(weights):
            return made
        weights = made.raw.desc("weights")
    given = {ARG.SRC: src, ARG.WEIGHTS: weights, ARG.DST: dst}
    if any(desc.strides is None or desc.offset for desc in given.values()):
        return made
    if not _lengths_agree(src.dims, weights.dims, dst.dims):
        return made
    opened = _opened(engine, given, bias, attributes)
    return made if opened is None else OpenPrimitiveDesc(made, opened, given)


def _opened(
    engine: Engine, given: dict[int, Desc], bias: Desc | None, attributes: Attributes
) -> PrimitiveDesc | None:
    src, weights, dst = (
        _with_open_lengths(engine, given[role]) for role in (ARG.SRC, ARG.WEIGHTS, ARG.DST)
    )
    try:
        opened = engine.primitive_desc("matmul", engine, src, weights, bias, dst, attributes)
    except OneDnnError:
        return None
    scratch = opened.desc("scratchpad")
    needs_memory = not scratch.is_absent and scratch.size_bytes
    return None if needs_memory or opened.implementation != _IMPLEMENTATION else opened


def _lengths_agree(src: Sequence[int], weights: Sequence[int], dst: Sequence[int]) -> bool:
    """True for (..., rows, inner) (..., inner, columns) (..., rows, columns), in all replays.

    The axes in front are the result's, or 1 whatever the lengths are.
    """
    if not len(src) == len(weights) == len(dst) >= 2:
        return False
    if src[-1] != weights[-2] or src[-2] != dst[-2] or weights[-1] != dst[-1]:
        return False
    return all(
        (not is_sym_int(part) and part == 1) or part == whole
        for side in (src, weights)
        for part, whole in zip(side[:-2], dst[:-2], strict=True)
    )


def _with_open_lengths(engine: Engine, desc: Desc) -> Desc:
    if not isinstance(desc, TracedDesc):
        return desc
    strides = desc.strides
    assert strides is not None
    made = c_void_p()
    engine.check(
        "dnnl_memory_desc_create_with_strides",
        byref(made),
        c_int(desc.rank),
        dims_of([_OPEN_LENGTH if is_sym_int(dim) else dim for dim in desc.dims]),
        dtype_number(desc.dtype),
        dims_of([_OPEN_LENGTH if is_sym_int(step) else step for step in strides]),
    )
    assert made.value is not None
    return Desc(engine, made.value)


def _form(desc: Desc) -> Any:
    strides = desc.strides
    lies = None if strides is None else tuple(map(identity_of, strides))
    return tuple(map(identity_of, desc.dims)), desc.dtype, lies


_ROLES = {
    ("src", 0): ARG.SRC,
    ("weights", 0): ARG.WEIGHTS,
    ("weights", 1): ARG.BIAS,
    ("dst", 0): ARG.DST,
}
