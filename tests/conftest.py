"""What tests of every folder may ask for: a Core, and a process whose collector rests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import aioinfer

# What reads the clock is left to the bound that each test has: a busy machine fails no example.
settings.register_profile("aioinfer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("aioinfer")


def pytest_collection_finish() -> None:
    """Leave what pytest holds of 15,000 tests out of every collection: each looked through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    """One for a module; folders whose tests change theirs have a fixture of their own."""
    with aioinfer.Core() as made:
        yield made


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What goes in the test goes because nothing holds it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
