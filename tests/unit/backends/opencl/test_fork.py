"""A child that was forked after its parent had used OpenCL is told, and does not hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from child_process import HAS_FORK, run_script
from opencl_device import missing_reason

SCRIPT = """
    from functools import partial
    from aioinfer import Core
    from aioinfer.backends.opencl import pyopencl_driver
    from aioinfer.backends.opencl.plugin import OpenClPlugin
    from aioinfer.errors import DeviceError

    if "without a device" in sys.argv:
        from unit.backends.accelerator.test_errors import Library
        pyopencl_driver._library = lambda: Library([])

    def is_there():
        with Core() as core:
            return any(name.startswith("OPENCL") for name in core.available_devices)

    refuses = partial(
        refuses,
        kind=DeviceError,
        text="OpenCL was used before fork, and its drivers do not work in the child; use the "
        "start method 'spawn'",
    )

    def check_child():
        assert not is_there()
        with Core() as core:
            refuses(lambda: core.load_network(b"", "OPENCL"))
        if driver is not None:
            refuses(lambda: driver.open(driver.find_devices()[0]))
            refuses(lambda: driver.open(facts))

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


@pytest.mark.skipif(not HAS_FORK, reason="this system has no fork")
@pytest.mark.parametrize("kind", ["with a device", "without a device"])
def test_a_child_is_told_that_its_parent_has_used_the_driver(kind: str, tmp_path: Path) -> None:
    if kind == "with a device" and (reason := missing_reason()) is not None:
        pytest.skip(reason)
    run_script(SCRIPT, tmp_path, kind)
