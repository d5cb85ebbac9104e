"""The OPENCL plugin: every device that an OpenCL driver of this machine offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import PropertyError
from ...runtime.devices.plugin import CoreHandle
from ...runtime.lowering.kernel_registry import KernelRegistry
from ...runtime.properties.properties import (
    DEVICE_ID,
    Configuration,
    Metric,
    Property,
    property_keys,
)
from ..accelerator.compiler import CompileRules
from ..accelerator.kernels.registry import FLOATS, KERNELS
from ..accelerator.passes import plan_passes
from ..accelerator.plan_builder import PlanBuilder
from ..accelerator.plugin import AcceleratorPlugin
from ..accelerator.properties import BATCH_BUCKETS
from ..accelerator.queues.driver import DeviceFacts, Driver
from .properties import OPENCL_PLATFORM
from .pyopencl_driver import PyOpenClDriver

__all__ = ["OpenClPlugin"]

_KERNELS = KernelRegistry("OPENCL", __package__, {}, FLOATS, base=KERNELS)


class OpenClPlugin(AcceleratorPlugin):
    """Compiles a model for each shape into kernels that are launched on a device's own queues.

    Devices are numbered over all platforms, in the loader's order. ``driver`` is pyopencl's unless
    a test gives one.
    """

    properties: ClassVar[tuple[Property[Any], ...]] = (OPENCL_PLATFORM, BATCH_BUCKETS)
    kernels: ClassVar[KernelRegistry[PlanBuilder]] = _KERNELS

    def __init__(self, core: CoreHandle, name: str, driver: Driver | None = None) -> None:
        super().__init__(core, name, PyOpenClDriver if driver is None else lambda: driver)

    def rules(self, facts: DeviceFacts, config: Configuration) -> CompileRules:
        return CompileRules(_KERNELS, plan_passes())

    def precision_refusal(self, hint: str, facts: DeviceFacts) -> str | None:
        if hint == "tf32":
            return "OpenCL has no such type"
        return None if hint != "f16" or facts.has_float16 else "it does not compute in float16"

    def device_ids(self) -> list[str]:
        of_all: Mapping[str, Any] = self._settings.get("", {})
        return self._ids_on(str(of_all.get(OPENCL_PLATFORM.key, "")))

    def check_device_id(self, device_id: str) -> None:
        """Raise DeviceError for an id that is not there.

        A device of another platform than the one set is: an argument may choose its platform, and
        without one the error says which platform it is on.
        """
        if device_id not in self._ids_on(""):
            super().check_device_id(device_id)

    def metrics(self) -> Sequence[Metric]:
        return (
            *super().metrics(),
            self.fact(
                "OPENCL_PLATFORM_NAME",
                lambda facts: facts.platform,
                "The platform that the device belongs to.",
            ),
            self.fact(
                "OPENCL_PLATFORM_VERSION",
                lambda facts: facts.platform_version,
                "The version of that platform, in its own words.",
            ),
        )

    def configuration(
        self, device_id: str | None, given: Mapping[Any, Any] | None = None
    ) -> Configuration:
        """Resolve all properties; a platform that is given chooses the default device."""
        values = property_keys(given, self.name)
        if OPENCL_PLATFORM.key in values and device_id is None and not values.get(DEVICE_ID.key):
            wanted = OPENCL_PLATFORM.value_of(values[OPENCL_PLATFORM.key], self.name)
            values[DEVICE_ID.key] = self._first_on(wanted)
        return super().configuration(device_id, values)

    def check_values(self, config: Configuration) -> None:
        self._check_platform(config)
        super().check_values(config)

    def _ids_on(self, platform: str) -> list[str]:
        return [str(facts.index) for facts in self.facts if facts.is_on(platform)]

    def _first_on(self, platform: str) -> str:
        ids = self._ids_on(platform)
        if not ids:
            raise self._no_platform(platform)
        return ids[0]

    def _check_platform(self, config: Configuration) -> None:
        wanted = str(config[OPENCL_PLATFORM])
        facts = self.facts_of(config[DEVICE_ID])
        if not facts.is_on(wanted):
            ids = self._ids_on(wanted)
            if not ids:
                raise self._no_platform(wanted)
            raise PropertyError(
                f"{self.name}.{facts.index} is on platform {facts.platform_text}, not on "
                f"{wanted!r}, whose devices are {', '.join(f'{self.name}.{i}' for i in ids)}",
                OPENCL_PLATFORM.key,
                self.name,
                value=wanted,
            )

    def _no_platform(self, wanted: str) -> PropertyError:
        there = ", ".join(sorted({facts.platform_text for facts in self.facts}))
        return PropertyError(
            f"{self.name}: no platform with a device has {wanted!r} in its name or version; there "
            f"are {there}",
            OPENCL_PLATFORM.key,
            self.name,
            value=wanted,
        )
