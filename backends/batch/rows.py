"""Rows of several requests as the rows of one run: joined on the way in, split on the way out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GraphError
from ...runtime.graph import shape_text

__all__ = ["join_rows", "row_count_of", "rows_key", "split_rows"]

Array = np.ndarray[Any, Any]


def row_count_of(inputs: Mapping[str, Any], batched: Sequence[str]) -> int:
    """Return how many rows a request has; 0: none, or none that can be told from its inputs."""
    counts = {
        array.shape[0] if type(array := inputs[name]) is np.ndarray and array.ndim else 0
        for name in batched
    }
    return counts.pop() if len(counts) == 1 else 0


def rows_key(inputs: Mapping[str, Any], batched: Sequence[str]) -> Hashable:
    """Return what requests have in common whose rows can be joined: types, and all other lengths.

    None for a request that has to go alone: its rows lie elsewhere, or disagree, or there are none.
    """
    if not row_count_of(inputs, batched):
        return None
    return tuple([(inputs[name].dtype, inputs[name].shape[1:]) for name in batched])


def join_rows(
    members: Sequence[Mapping[str, Any]],
    batched: Sequence[str],
    empty: Callable[[tuple[int, ...], np.dtype[Any]], Array],
) -> dict[str, Array]:
    """Write the rows of all members one after the other, each once, to arrays made by ``empty``.

    Their ``rows_key`` is the same.
    """
    joined = {}
    for name in batched:
        parts = [inputs[name] for inputs in members]
        total = sum(len(part) for part in parts)
        joined[name] = empty((total, *parts[0].shape[1:]), parts[0].dtype)
        np.concatenate(parts, out=joined[name])
    return joined


def split_rows(
    results: Mapping[str, Any], batched: Collection[str], row_counts: Sequence[int]
) -> list[dict[str, Any]]:
    """Give every member its own lines of each output: views, which keep the whole array alive.

    An output that has no rows is for all of them: the first gets it, each other one a copy. Raises
    GraphError if an output has not as many lines for each row.
    """
    total = sum(row_counts)
    split: list[dict[str, Any]] = [{} for _ in row_counts]
    for name, value in results.items():
        if name not in batched:
            for index, own in enumerate(split):
                own[name] = np.array(value) if index else value
            continue
        lines, rest = divmod(len(value), total)
        if rest:
            raise GraphError(
                f"output {name!r} is {shape_text(value.shape)} for {total} rows, which is no whole "
                f"number of lines for each of them"
            )
        begin = 0
        for own, count in zip(split, row_counts, strict=True):
            end = begin + count * lines
            own[name] = value[begin:end]
            begin = end
    return split
