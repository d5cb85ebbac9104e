"""Skips what needs a device where there is none; makes the benchmarks' networks importable."""

import sys
from pathlib import Path

import pytest

from opencl_device import core, skip_without_device

__all__ = ["core"]

_HERE = Path(__file__).parent
_BENCHMARKS = str(Path(__file__).resolve().parents[4] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_device(items, _HERE)
