"""Skips what needs a device where there is none; makes the benchmarks' networks importable."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from opencl_device import choose_device
from unit.backends.opencl.comparing import missing_reason

_HERE = Path(__file__).parent
_BENCHMARKS = str(Path(__file__).resolve().parents[4] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if _HERE in item.path.parents and _needs_device(item)]
    reason = missing_reason() if mine else None
    for item in mine if reason is not None else ():
        item.add_marker(pytest.mark.skip(reason=reason))


def _needs_device(item: pytest.Item) -> bool:
    return "core" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as core:
        choose_device(core)
        yield core
