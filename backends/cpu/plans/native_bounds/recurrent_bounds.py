"""Recurrent layers (native_recurrent.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reach import FLOAT32, INT32, MOST_PARTS, Reach, Rule, product, strided, take

__all__ = ["RULES"]

_RECURRENT_GATES, _RECURRENT_SLOTS = (4, 3, 3, 1, 1, 1), (3, 4, 2, 2, 2, 2)
_RECURRENT_BLOCK, _LATE_GRU = 16, 2


def _recurrent(parameters: Sequence[int]) -> list[Reach]:
    kind, time, batch, hidden, directions, backwards, *words = take(parameters, 19)
    flags, (is_coupled, _, parts, rows) = words[5:9], words[9:]
    _, has_result, has_peepholes, has_lengths = flags
    known = range(len(_RECURRENT_GATES)), (1, 2), range(4)
    if not all(
        word in each for word, each in zip((kind, directions, backwards), known, strict=True)
    ):
        raise ValueError(
            f"a layer of kind {kind} in {directions} directions, {backwards} of them back"
        )
    if any(flag not in (0, 1) for flag in (*flags, is_coupled)) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"a layer with the flags {flags}, {is_coupled} in {parts} parts")
    if min(time, batch, hidden) < 1 or (has_peepholes and kind):
        raise ValueError(f"a layer of kind {kind} of {[time, batch, hidden]}")
    if not 1 <= rows <= batch:
        raise ValueError(f"walks with {rows} of {batch} sequences")
    gates, slots = _RECURRENT_GATES[kind], _RECURRENT_SLOTS[kind]
    padded = -(-hidden // _RECURRENT_BLOCK) * _RECURRENT_BLOCK
    units = product(directions, padded, 4)
    given = [4 * stride for stride in words[:5]]
    row = product(units, gates) // 4
    product(time, batch, units, gates, slots)
    found: list[Reach] = [
        (*strided((time, batch, row), (*given[:2], 4), 4), FLOAT32),
        (0, product(units, hidden, gates), FLOAT32),
    ]
    if kind == _LATE_GRU:
        found.append((0, units, FLOAT32))
    if has_peepholes:
        found.append((0, 3 * units, FLOAT32))
    if has_lengths:
        found.append((0, product(batch, 4), INT32))
    found.append((0, product(units, batch, slots), FLOAT32))
    if has_result:
        lengths = (time, directions, batch, hidden)
        found.append((*strided(lengths, (*given[2:], 4), 4), FLOAT32))
    return found


RULES: Mapping[str, Rule] = {
    "recurrent": _recurrent,
}
