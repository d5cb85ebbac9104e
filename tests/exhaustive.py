"""Parameters of which a few run in ``make test``, and all in ``make test-all``."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["all_but"]


def all_but(always: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark as exhaustive the cases that are not among ``always``; a tuple is several arguments."""
    cases = list(cases)
    assert all(case in cases for case in always)
    return [case if case in always else _exhaustive(case) for case in cases]


def _exhaustive(case: Any) -> Any:
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.exhaustive)
