"""A child that was forked after its parent had used OpenCL is told, and does not hang."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from opencl_device import missing_reason

TESTS = Path(__file__).parents[3]
SCRIPT = """
    import os, sys, warnings
    warnings.simplefilter("ignore")  # newer Pythons warn of fork beside threads
    sys.path.insert(0, sys.argv[1])
    from aioinfer import Core
    from aioinfer.backends.opencl import pyopencl_driver
    from aioinfer.backends.opencl.plugin import OpenClPlugin
    from aioinfer.errors import DeviceError

    if "without a device" in sys.argv:
        from unit.runtime.accelerator.test_errors import Library
        pyopencl_driver._library = lambda: Library([])

    def is_there():
        with Core() as core:
            return any(name.startswith("OPENCL") for name in core.available_devices)

    def refuses(call):
        try:
            call()
        except DeviceError as error:
            assert "OpenCL was used before fork" in str(error), error
            assert "use the start method 'spawn'" in str(error), error
        else:
            raise AssertionError("was not refused")

    def check_child():
        assert not is_there()
        with Core() as core:
            refuses(lambda: core.load_network(b"", "OPENCL"))
        if driver is not None:
            refuses(lambda: driver.open(driver.find_devices()[0]))
            refuses(lambda: driver.open(facts))

    def in_child(check):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                check()
                code = 0
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    driver = None
    has_device = "with a device" in sys.argv
    def check_first_use():
        assert is_there() == has_device
    in_child(check_first_use)  # the parent has not used it
    assert is_there() == has_device
    if has_device:
        driver = pyopencl_driver.PyOpenClDriver()
        facts = driver.find_devices()[0]
    in_child(check_child)
    assert is_there() == has_device, "the parent goes on"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("kind", ["with a device", "without a device"])
def test_a_child_is_told_that_its_parent_has_used_the_driver(kind: str, tmp_path: Path) -> None:
    if kind == "with a device" and (reason := missing_reason()) is not None:
        pytest.skip(reason)
    ended = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(SCRIPT), str(TESTS), kind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
