"""A Core on the fake driver; and what needs a device is skipped where there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from opencl_device import skip_without_device
from quick_builds import core
from unit.backends.accelerator.fake_driver import FakeDriver
from unit.backends.accelerator.opened import Opened
from unit.backends.accelerator.serving import serving

__all__ = ["core"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_device(items, _HERE)


@pytest.fixture
def fake_core(driver: FakeDriver) -> Iterator[Core]:
    """Give a Core with the device FAKE on the test's own ``driver``."""
    with serving(driver) as made:
        yield made


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open the fake device, with nothing in its memory."""
    made = Opened()
    yield made
    made.close()
