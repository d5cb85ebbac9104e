"""A driver with some of its libraries left out, which notes what the others were asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import DeviceFacts
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.runtime.devices.device_name import parse_device
from gpu.device import DEVICE

__all__ = ["WatchedDriver", "cupy_driver", "register"]


def cupy_driver() -> Any:
    """Make the driver that CUDA has."""
    from aioinfer.backends.cuda import cupy_driver

    return cupy_driver.CupyDriver()


class WatchedDriver:
    """A driver, without the libraries that are named. ``operations`` are what was planned."""

    def __init__(self, driver: Any, left_out: Iterable[str] = ()) -> None:
        self._driver, self._left_out = driver, frozenset(left_out)
        self.operations: list[LibraryOperation] = []

    def find_devices(self) -> list[DeviceFacts]:
        return [
            replace(facts, libraries=facts.libraries - self._left_out)
            for facts in self._driver.find_devices()
        ]

    def open(self, facts: DeviceFacts) -> Any:
        return WatchedContext(self._driver.open(facts), facts, self.operations)


class WatchedContext:
    """An opened device that tells the facts it was opened with."""

    def __init__(self, context: Any, facts: DeviceFacts, operations: list[LibraryOperation]):
        self._context, self.facts, self._operations = context, facts, operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def library_program(self, operation: LibraryOperation) -> Any:
        self._operations.append(operation)
        return self._context.library_program(operation)


def register(core: Core, name: str, driver: WatchedDriver) -> None:
    """Add CUDA on a driver under a name of its own, for the device that tests use."""
    from aioinfer.backends.cuda.plugin import CudaPlugin

    core.register_plugin(name, lambda handle, given: CudaPlugin(handle, given, driver))
    core.set_config(name, {"DEVICE_ID": parse_device(DEVICE).id or ""})
