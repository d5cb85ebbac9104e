"""Rows of several requests as the rows of one run: joined on the way in, split on the way out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GraphError
from ...runtime.graph import shape_text

__all__ = ["RowsOf", "check_lines", "join_rows", "rows_of", "split_rows"]

Array = np.ndarray[Any, Any]
RowsOf = Callable[[Mapping[str, Any], Sequence[str]], tuple[int, Hashable]]


def rows_of(inputs: Mapping[str, Any], batched: Sequence[str]) -> tuple[int, Hashable]:
    """Return how many rows a request has, and its key: only those of equal keys can be joined.

    The key holds types and all other lengths. It is None for a request that has to go alone: its
    arrays lie elsewhere, or disagree, or there are no rows; it counts as one row then.
    """
    counted, key = -1, []
    for name in batched:
        array = inputs[name]
        shape = array.shape if type(array) is np.ndarray else ()
        count = shape[0] if shape else 0
        if not count or counted not in (-1, count):
            return 1, None
        counted = count
        key += [array.dtype, shape[1:]]
    return counted, tuple(key)


def join_rows(
    members: Sequence[Mapping[str, Any]],
    batched: Sequence[str],
    empty: Callable[[tuple[int, ...], np.dtype[Any]], Array],
) -> dict[str, Array]:
    """Write the rows of all members one after the other, each once, to arrays made by ``empty``.

    Their keys are equal.
    """
    joined = {}
    for name in batched:
        parts = [inputs[name] for inputs in members]
        total = sum(map(len, parts))
        joined[name] = empty((total, *parts[0].shape[1:]), parts[0].dtype)
        np.concatenate(parts, out=joined[name])
    return joined


def check_lines(results: Mapping[str, Any], batched: Collection[str], row_count: int) -> None:
    """Raise GraphError unless outputs have as many lines for each row."""
    for name, value in results.items():
        if name in batched and len(value) % row_count:
            raise GraphError(
                f"output {name!r} is {shape_text(value.shape)} for {row_count} rows, which is no "
                f"whole number of lines for each of them"
            )


def split_rows(
    results: Mapping[str, Any], batched: Collection[str], row_counts: Sequence[int]
) -> list[dict[str, Any]]:
    """Give every member its own lines of each output: views, which keep the whole array alive.

    An output that has no rows is for all of them: the first gets it, each other one a copy. Raises
    GraphError if an output has not as many lines for each row.
    """
    total = sum(row_counts)
    check_lines(results, batched, total)
    split: list[dict[str, Any]] = [{} for _ in row_counts]
    for name, value in results.items():
        if name not in batched:
            for index, own in enumerate(split):
                own[name] = np.array(value) if index else value
            continue
        lines, begin = len(value) // total, 0
        for own, count in zip(split, row_counts, strict=True):
            end = begin + count * lines
            own[name] = value[begin:end]
            begin = end
    return split
