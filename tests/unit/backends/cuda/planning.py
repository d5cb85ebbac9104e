"""A Core with CUDA on a fake driver, or on none."""

from __future__ import annotations

from dataclasses import replace

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import Context, DeviceFacts, Driver
from aioinfer.backends.cuda.plugin import CudaPlugin
from aioinfer.errors import DeviceError
from unit.backends.accelerator.fake_driver import FACTS

__all__ = ["GPU", "MISSING", "MissingDriver", "cuda_core"]

GPU = replace(
    FACTS,
    name="NVIDIA H200",
    platform="NVIDIA CUDA",
    platform_version="CUDA 13.0",
    driver_version="580.1",
    has_float16=True,
    compute_capability=(9, 0),
    libraries=frozenset({"cudnn", "cublas"}),
    can_capture=True,
)
MISSING = "NVIDIA's driver is not installed; install it"


class MissingDriver:
    """What a machine without a GPU has."""

    def find_devices(self) -> list[DeviceFacts]:
        raise DeviceError(MISSING)

    def open(self, facts: DeviceFacts) -> Context:
        raise AssertionError("nothing was found")


def cuda_core(driver: Driver | None = None, name: str = "CUDA") -> Core:
    """Make a Core with a plugin of this name on a driver; without one no GPU is there."""
    core = Core()
    if name in core.plugin_names:
        core.unregister_plugin(name)
    used = MissingDriver() if driver is None else driver
    core.register_plugin(name, lambda handle, given: CudaPlugin(handle, given, used))
    return core
