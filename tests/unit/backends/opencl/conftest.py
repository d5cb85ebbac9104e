"""Skips what needs a device where there is none."""

from pathlib import Path

import pytest

from opencl_device import core, skip_without_device
from quick_builds import core as quick_core

__all__ = ["core", "quick_core"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_device(items, _HERE)
