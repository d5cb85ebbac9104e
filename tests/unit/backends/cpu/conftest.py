"""Skips what needs oneDNN where it is not; makes the benchmarks' networks importable."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from unit.backends.cpu.comparing import missing_reason

_HERE = Path(__file__).parent
_BENCHMARKS = str(Path(__file__).resolve().parents[4] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing_reason()
    if reason is None:
        return
    for item in items:
        if _HERE in item.path.parents and "needs_no_library" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as core:
        yield core
