"""A plugin of pytest: failures are told when they happen, and a broken device ends its process.

Where a suite is stopped in the middle, what failed until then has been told, and what tests that
passed have printed. After a failure the device is asked whether it still works: an error that
breaks it stays with the process, and every later test would fail of it. With xdist another process
goes on with the next test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

BROKEN = 70
"""The exit status of a process whose device is broken."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_EarlyFailures(config))


class _EarlyFailures:
    """Hears of the tests of this process; in xdist's main process, of those of all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._has_failed = config, False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print what failed, at once; xdist's main process does it for the others."""
        self._has_failed = self._has_failed or report.failed
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        if report.passed and report.when == "call" and report.capstdout:
            terminal.ensure_newline()
            terminal.write_line(report.capstdout.rstrip())
        if not report.failed:
            return
        terminal.ensure_newline()
        terminal.write_line(f"FAILED {report.nodeid} ({report.when})")
        terminal.write_line(report.longreprtext)
        for title, text in report.sections:
            terminal.write_line(f"--- {title}\n{text}")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End this process if a test has failed and the device is broken."""
        if self._has_failed and device_is_broken():
            told = f"the device is broken since {nodeid}: this process ends\n"
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, told.encode())
            os._exit(BROKEN)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(config: pytest.Config) -> Iterator[Any]:
    """Leave out at the end what was told."""
    config.option.tbstyle = "no"
    return (yield)


def device_is_broken() -> bool:
    """Ask CuPy's current device, if CuPy is in use."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return False
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except Exception:  # CUDARuntimeError: a sticky error is repeated by every call
        return True
    return False
