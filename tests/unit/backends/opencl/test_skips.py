"""Without an OpenCL driver the tests that want one are skipped, and say how to get one."""

from pathlib import Path

import pytest

from aioinfer.backends.opencl import pyopencl_driver
from opencl_device import missing_reason
from unit.backends.accelerator.test_errors import Library

MAKEFILE = Path(__file__).resolve().parents[4] / "Makefile"


def test_the_reason_of_a_skip_names_the_command_that_installs_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyopencl_driver, "_library", lambda: Library([]))
    reason = missing_reason()
    assert reason is not None
    assert "make opencl-driver" in reason
    assert "\nopencl-driver:" in MAKEFILE.read_text(encoding="utf-8")
