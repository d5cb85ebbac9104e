"""Operators that move elements of any type, or see them in another shape."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from property.operators.cases import Case, generator, given


@generator("Transpose")
def draw_transpose(case: Case, op_type: str) -> None:
    x = case.array(case.shape((0, 5)), case.dtype())
    order = case.draw(_permutations(x.ndim)) if x.ndim and case.flag() else None
    case.give(op_type, case.feed(x, known=False), **given({"perm": order}))


def _permutations(rank: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(rank))


@generator("Concat")
def draw_concat(case: Case, op_type: str) -> None:
    shape, dtype = list(case.shape((1, 4))), case.dtype()
    axis = case.axis(len(shape))
    names = []
    for index in range(case.number(1, 4)):
        shape[axis] = case.number(0, 5)
        names.append(case.feed(case.array(shape, dtype), known=False if index == 0 else None))
    case.give(op_type, *names, axis=axis)


@generator("Split")
def draw_split(case: Case, op_type: str) -> None:
    shape = list(case.shape((1, 4)))
    axis = case.axis(len(shape))
    parts = case.numbers(case.number(1, 4), 0, 4)
    if case.flag():
        shape[axis] = sum(parts)
        names, count = [case.integers(parts)], None
    else:
        names, count = [], len(parts)
        shape[axis] = case.number(count, 9)
        if -(-shape[axis] // count) * (count - 1) >= shape[axis]:  # nothing left for the last
            shape[axis] = 2 * count
    x = case.feed(case.array(shape, case.dtype()), known=False)
    case.give(op_type, x, *names, outputs=len(parts), axis=axis, **given({"num_outputs": count}))


@generator("Slice")
def draw_slice(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4))
    axes = case.draw(_permutations(len(shape)))[: case.number(1, len(shape))]
    axes = [axis - len(shape) if case.flag() else axis for axis in axes]
    if case.flag():
        axes = list(range(len(axes)))
    bounds = [case.integers([case.number(-7, 7) for _ in axes]) for _ in range(2)]
    steps = [case.one_of([1, 2, 3, -1, -2]) for _ in axes]
    names = [case.integers(axes)]
    if case.flag():
        names.append(case.integers(steps))
    elif axes == list(range(len(axes))) and case.flag():
        names = []
    x = case.feed(case.array(shape, case.dtype()), known=False)
    case.give(op_type, x, *bounds, *names)


@generator("Expand")
def draw_expand(case: Case, op_type: str) -> None:
    wanted = list(case.shape((0, 4)))
    own = [case.one_of([1, length]) for length in wanted][case.number(0, len(wanted)) :]
    told = [1 if case.flag() and length in own[-1:] else length for length in wanted]
    x = case.feed(case.array(own, case.dtype()), known=False)
    case.give(op_type, x, case.integers(told))


@generator("Tile")
def draw_tile(case: Case, op_type: str) -> None:
    x = case.array(case.shape((1, 4)), case.dtype())
    repeats = case.integers(case.numbers(x.ndim, 0, 3))
    case.give(op_type, case.feed(x, known=False), repeats)


@generator("DepthToSpace", "SpaceToDepth")
def draw_blocks(case: Case, op_type: str) -> None:
    block = case.number(1, 3)
    batch, channels, height, width = case.numbers(4, 1, 3)
    if op_type == "DepthToSpace":
        shape, mode = (batch, channels * block**2, height, width), case.one_of(["DCR", "CRD"])
    else:
        shape, mode = (batch, channels, height * block, width * block), None
    x = case.feed(case.array(shape, case.dtype()), known=False)
    case.give(op_type, x, blocksize=block, **given({"mode": mode}))


@generator("Gather", "GatherElements")
def draw_gather(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4), least=1)
    axis = case.axis(len(shape))
    wanted = list(case.shape((0, 2)))
    if op_type == "GatherElements":
        wanted = list(shape)
        wanted[axis] = case.number(1, 6)
    length = shape[axis]
    indices = case.array(wanted, case.one_of([np.int64, np.int32]), -length, length - 1)
    x = case.feed(case.array(shape, case.dtype()), known=False)
    case.give(op_type, x, case.feed(indices), axis=axis)


@generator("GatherND")
def draw_gather_nd(case: Case, op_type: str) -> None:
    shape = case.shape((1, 4), least=1)
    batches = case.number(0, len(shape) - 1)
    depth = case.number(1, len(shape) - batches)
    rows = (*shape[:batches], *case.shape((0, 2), least=1, most=4))
    columns = [case.array(rows, np.int64, -size, size - 1) for size in shape[batches:][:depth]]
    x = case.feed(case.array(shape, case.dtype()), known=False)
    case.give(op_type, x, case.feed(np.stack(columns, axis=-1)), batch_dims=batches)


@generator("Trilu")
def draw_triangle(case: Case, op_type: str) -> None:
    x = case.array(case.shape((2, 4)), case.dtype())
    names = [case.integers(case.number(-6, 6))] if case.flag() else []
    case.give(op_type, case.feed(x, known=False), *names, upper=case.number(0, 1))


@generator("Reshape")
def draw_reshape(case: Case, op_type: str) -> None:
    x = case.array(case.shape((0, 4)), case.dtype())
    kept = 0
    while kept < x.ndim and x.shape[kept] and case.flag():
        kept += 1
    rest = math.prod(x.shape[kept:])
    factor = case.one_of([n for n in range(1, 6) if rest % n == 0])
    tail = [factor, rest // factor] if rest else list(x.shape[kept:])
    if rest and case.flag():
        tail[case.number(0, 1)] = -1
    allows_zero = 0 in tail
    shape = [*(x.shape[:kept] if allows_zero else [0] * kept), *tail]
    case.give(op_type, case.feed(x, known=False), case.integers(shape), allowzero=int(allows_zero))


@generator("Flatten")
def draw_flatten(case: Case, op_type: str) -> None:
    x = case.array(case.shape((0, 4)), case.dtype())
    case.give(op_type, case.feed(x, known=False), axis=case.number(-x.ndim, x.ndim))


@generator("Squeeze")
def draw_squeeze(case: Case, op_type: str) -> None:
    x = case.array([case.one_of([1, 1, 3]) for _ in range(case.number(1, 4))], case.dtype())
    axes = [axis for axis, length in enumerate(x.shape) if length == 1 and case.flag()]
    axes = [axis - x.ndim if case.flag() else axis for axis in axes]
    case.give(op_type, case.feed(x, known=False), *([case.integers(axes)] if axes else []))


@generator("Unsqueeze")
def draw_unsqueeze(case: Case, op_type: str) -> None:
    x = case.array(case.shape((0, 3)), case.dtype())
    count = case.number(1, 2)
    places = case.draw(_permutations(x.ndim + count))[:count]
    axes = [place - x.ndim - count if case.flag() else place for place in places]
    case.give(op_type, case.feed(x, known=False), case.integers(axes))


@generator("Identity")
def draw_identity(case: Case, op_type: str) -> None:
    case.give(op_type, case.feed(case.array(case.shape(), case.dtype()), known=False))
