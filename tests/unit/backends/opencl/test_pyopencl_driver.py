"""What a device of OpenCL can do, from the words that its driver has for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aioinfer.backends.opencl import pyopencl_driver
from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver

CPU, GPU = 2, 4


class Device(SimpleNamespace):
    """As much of a library's device as is asked for its facts."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("extensions", "has_float16"),
    [("cl_khr_fp64 cl_khr_fp16 ", True), ("cl_khr_fp64", False), ("cl_khr_fp16_of_its_own", False)],
)
def test_a_device_computes_in_float16_if_its_driver_has_the_extension(
    monkeypatch: pytest.MonkeyPatch, extensions: str, has_float16: bool
) -> None:
    platform = SimpleNamespace(name="A Platform", version="OpenCL 3.0")
    device = Device(
        type=GPU,
        name="a GPU ",
        platform=platform,
        driver_version="1.0",
        host_unified_memory=False,
        global_mem_size=1 << 30,
        max_mem_alloc_size=1 << 28,
        mem_base_addr_align=1024,
        local_mem_size=1 << 15,
        max_work_group_size=256,
        extensions=extensions,
    )
    platform.get_devices = lambda: [device]
    library = SimpleNamespace(
        Error=RuntimeError,
        device_type=SimpleNamespace(CPU=CPU),
        get_platforms=lambda: [platform],
    )
    monkeypatch.setattr(pyopencl_driver, "_library", lambda: library)
    (facts,) = PyOpenClDriver().find_devices()
    assert facts.has_float16 == has_float16
    assert facts.compute_capability is None
