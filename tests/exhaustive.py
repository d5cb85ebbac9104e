"""Which cases run in ``make test``, and which in ``make test-all`` only.

Of a parametrised test a sample runs in ``make test``: cases in which each name of each parameter
(operator, mode, type, device, kind of mistake) comes up once, and no fewer than ``LEAST`` where
numbers alone tell the cases apart. A test that costs much says by ``all_but`` which cases are run.
Of what a test draws (examples, runs, tries) a quarter is drawn in ``make test``: ``drawn``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

__all__ = ["LEAST", "all_but", "choose_cases", "drawn", "mark_beyond_samples", "sample_draws"]

LEAST = 2
"""Cases of one test that ``make test`` runs at least, if there are as many."""


_is_sampling = False


def sample_draws(*, is_sampling: bool) -> None:
    """Say, before tests are imported, whether a sample is run, as by ``make test``."""
    global _is_sampling
    _is_sampling = is_sampling


def drawn(count: int) -> int:
    """Return how many to draw where all would be ``count``."""
    return -(-count // 4) if _is_sampling else count


def all_but(always: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark as exhaustive the cases that are not among ``always``; a tuple is several arguments."""
    cases = list(cases)
    assert all(case in cases for case in always)
    return [case if case in always else _exhaustive(case) for case in cases]


def mark_beyond_samples(items: Iterable[pytest.Item]) -> None:
    """Mark as exhaustive what is not in the sample of its test; other marks stay."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        wanted = [case for case in cases if case.get_closest_marker("exhaustive") is None]
        chosen = choose_cases([case.callspec.params for case in wanted])
        for index, case in enumerate(wanted):
            if index not in chosen:
                case.add_marker("exhaustive")


def choose_cases(cases: Sequence[Mapping[str, Any]]) -> set[int]:
    """Choose cases, by index, which have each name of each argument between them.

    First those of which all names are new, then those with one that is new, each in order.
    """
    names = [_names(case) for case in cases]
    chosen: set[int] = set()
    seen: set[Hashable] = set()
    for is_new in (set.isdisjoint, lambda own, others: not own <= others):
        for index, own in enumerate(names):
            if own and is_new(own, seen):
                chosen.add(index)
                seen |= own
    rest = (index for index in range(len(cases)) if index not in chosen)
    return chosen.union(itertools.islice(rest, max(LEAST - len(chosen), 0)))


def _names(case: Mapping[str, Any]) -> set[Hashable]:
    named = {argument: _name(value) for argument, value in case.items()}
    return {pair for pair in named.items() if pair[1] is not None}


def _name(value: Any) -> Hashable:
    """Return what a value is called; None for numbers, lists of them, arrays and models."""
    if isinstance(value, str | bool | type | np.dtype):
        return value
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return name if isinstance(name, str) else None


def _exhaustive(case: Any) -> Any:
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.exhaustive)
