"""A Core on the fake driver; and what needs a device is skipped where there is none."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aioinfer import Core
from aioinfer.backends.accelerator import device_slot
from aioinfer.backends.opencl.plugin import OpenClPlugin
from opencl_device import skip_without_device
from quick_builds import core
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.opened import Opened
from unit.backends.accelerator.serving import serving

__all__ = ["core"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_device(items, _HERE)


@pytest.fixture(params=["discrete", "cpu"])
def driver(request: pytest.FixtureRequest) -> FakeDriver:
    """Give a driver that does nothing before it is told to: of a GPU, and of a CPU."""
    return FakeDriver(replace(FACTS, kind=request.param, can_capture=True), is_eager=False)


@pytest.fixture
def hands_copies_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count copies of more than 64 KiB as large, which may all the same be one command's."""
    monkeypatch.setattr(device_slot, "_LIGHT_BYTES", 64 << 10)


@pytest.fixture
def plugin() -> type[OpenClPlugin]:
    """Return what serves the device; a test that is parametrized with one has it served so."""
    return OpenClPlugin


@pytest.fixture
def fake_core(driver: FakeDriver, plugin: type[OpenClPlugin]) -> Iterator[Core]:
    """Give a Core with the device FAKE on the test's own ``driver``."""
    with serving(driver, plugin) as made:
        yield made


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open the fake device, with nothing in its memory."""
    made = Opened()
    yield made
    made.close()
