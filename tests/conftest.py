"""What tests of every folder may ask for: a Core, and a process whose collector rests.

Tests share a process with others, in an order that differs from run to run.
"""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import aioinfer
from aioinfer.runtime.loops.inline_turn import InlineTurn, threads
from exhaustive import mark_beyond_samples, sample_draws

# What reads the clock is left to the bound that each test has: a busy machine fails no example.
settings.register_profile("aioinfer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("aioinfer")


def pytest_configure(config: pytest.Config) -> None:
    """Have SIGINT end what tests start: a shell that runs pytest in the background ignores it."""
    sample_draws(is_sampling="not exhaustive" in config.getoption("markexpr"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have ``-m 'not exhaustive'`` leave a sample of each test's cases."""
    mark_beyond_samples(items)


def pytest_collection_finish() -> None:
    """Leave what pytest holds of 15,000 tests out of every collection: each looked through it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """Have what all Cores share as it was: loggers, of which LOG_LEVEL sets those of devices."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("aioinfer") and isinstance(logger, logging.Logger) and logger.level:
            logger.setLevel(logging.NOTSET)
    threads.turn = InlineTurn()  # a test may have said that its loop is crowded


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
