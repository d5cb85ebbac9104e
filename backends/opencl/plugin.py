"""The OPENCL plugin: every device that an OpenCL driver of this machine offers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import DeviceError, PropertyError
from ...runtime.accelerator.compiler import CompileRules
from ...runtime.accelerator.driver import DeviceFacts, Driver, DriverError
from ...runtime.accelerator.executable_network import AcceleratorNetwork
from ...runtime.accelerator.kernels.registry import FLOATS, KERNELS
from ...runtime.accelerator.opened_device import OpenedDevice
from ...runtime.accelerator.passes import plan_passes
from ...runtime.accelerator.precision import Precision
from ...runtime.executable_network import ExecutableNetwork
from ...runtime.graph import DType, Model
from ...runtime.kernel_registry import KernelRegistry
from ...runtime.passes import DeadCode, PassReport, default_passes, run_passes
from ...runtime.passes.model_passes import model_passes
from ...runtime.plugin import CoreHandle, Plugin
from ...runtime.properties import (
    AUTO,
    DEVICE_ID,
    INFERENCE_PRECISION_HINT,
    NUM_STREAMS,
    Configuration,
    Metric,
    Property,
    property_keys,
)
from .properties import OPENCL_PLATFORM
from .pyopencl_driver import PyOpenClDriver

__all__ = ["RULES", "OpenClPlugin"]

RULES = CompileRules(KernelRegistry("OPENCL", __package__, (), FLOATS, base=KERNELS), plan_passes())
_HELD = {"f32": DType.FLOAT32, "f16": DType.FLOAT16, "bf16": DType.BFLOAT16}
"""INFERENCE_PRECISION_HINT -> what float32 values are held in between launches."""
_SMALLEST_GROUP = 64
"""Work-items of one group that kernels with local memory count on."""


class OpenClPlugin(Plugin):
    """Compiles a model for each shape into kernels that are launched on a device's own queues.

    Devices are numbered over all platforms, in the loader's order. A device is opened by its first
    network and stays open as long as the plugin. ``driver`` is pyopencl's unless a test gives one.
    """

    properties: ClassVar[tuple[Property[Any], ...]] = (OPENCL_PLATFORM,)

    def __init__(self, core: CoreHandle, name: str, driver: Driver | None = None) -> None:
        super().__init__(core, name)
        self._driver: Driver = PyOpenClDriver() if driver is None else driver
        self._facts = self._driver.find_devices()
        self._opened: dict[int, OpenedDevice] = {}
        self._opening = threading.Lock()

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

    def full_device_name(self, device_id: str) -> str:
        facts = self._facts_of(device_id)
        return f"{facts.name} ({facts.platform})"

    def metrics(self) -> Sequence[Metric]:
        return (
            Metric(
                "OPTIMIZATION_CAPABILITIES",
                lambda options: _capabilities(self._facts_of(self._id_of(options))),
                "Types and abilities of the device.",
            ),
            Metric(
                "DEVICE_TYPE",
                lambda options: self._facts_of(self._id_of(options)).kind,
                "'cpu', or an accelerator: 'integrated' in the host's memory, or 'discrete'.",
            ),
            Metric(
                "DRIVER_VERSION",
                lambda options: self._facts_of(self._id_of(options)).driver_version,
                "The version of the device's OpenCL driver.",
            ),
            Metric(
                "DEVICE_TOTAL_MEM_SIZE",
                lambda options: self._facts_of(self._id_of(options)).memory_bytes,
                "The device's memory, in bytes.",
            ),
            Metric(
                "OPENCL_PLATFORM_NAME",
                lambda options: self._facts_of(self._id_of(options)).platform,
                "The platform that the device belongs to.",
            ),
            Metric(
                "OPENCL_PLATFORM_VERSION",
                lambda options: self._facts_of(self._id_of(options)).platform_version,
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
        if config[NUM_STREAMS] not in (AUTO, 1):
            raise PropertyError(
                f"{self.name} has one compute queue for each device; leave NUM_STREAMS at AUTO "
                f"(given: {config[NUM_STREAMS]})",
                NUM_STREAMS.key,
                self.name,
            )
        if config["INFERENCE_NUM_THREADS"]:
            raise PropertyError(
                f"{self.name} leaves threads to the driver; leave INFERENCE_NUM_THREADS at 0 "
                f"(given: {config['INFERENCE_NUM_THREADS']})",
                "INFERENCE_NUM_THREADS",
                self.name,
            )
        hint = config[INFERENCE_PRECISION_HINT]
        known = _precisions(self._facts_of(config[DEVICE_ID]))
        if hint not in known:
            raise PropertyError(
                f"{config.device} cannot honour INFERENCE_PRECISION_HINT={hint!r}; it has "
                f"{', '.join(known)}",
                INFERENCE_PRECISION_HINT.key,
                self.name,
            )

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        copied = model.copy()
        return copied, run_passes(copied, (*default_passes(), *model_passes(), DeadCode()))

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return RULES.kernels.unsupported_nodes(model.graph)

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        RULES.kernels.refuse_unsupported(model.graph, config.device)
        opened = self._open(config[DEVICE_ID])
        opened.health.refuse_if_lost()
        config = config.with_defaults({NUM_STREAMS: 1})
        precision = Precision(_HELD[config[INFERENCE_PRECISION_HINT]])
        return AcceleratorNetwork(model, opened, precision, RULES, config, self.core)

    def close(self) -> None:
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()

    def _open(self, device_id: str) -> OpenedDevice:
        facts = self._facts_of(device_id)
        name = f"{self.name}.{facts.index}"
        if facts.work_group_size < _SMALLEST_GROUP:
            raise DeviceError(
                f"{name} ({facts.name}) runs groups of {facts.work_group_size} work-items, and "
                f"kernels need {_SMALLEST_GROUP}; use another platform, by OPENCL_PLATFORM"
            )
        with self._opening:
            if facts.index not in self._opened:
                try:
                    self._opened[facts.index] = OpenedDevice(name, self._driver.open(facts))
                except DriverError as error:
                    raise DeviceError(
                        f"{name} ({facts.name}) cannot be opened: {error.text}; see whether "
                        "another program holds it, or use another device"
                    ) from error
            return self._opened[facts.index]

    def _facts_of(self, device_id: str) -> DeviceFacts:
        return self._facts[int(device_id or self.device_ids()[0])]

    def _ids_on(self, platform: str) -> list[str]:
        return [str(facts.index) for facts in self._facts if facts.is_on(platform)]

    def _first_on(self, platform: str) -> str:
        ids = self._ids_on(platform)
        if not ids:
            raise self._no_platform(platform)
        return ids[0]

    def _check_platform(self, config: Configuration) -> None:
        wanted = str(config[OPENCL_PLATFORM])
        facts = self._facts_of(config[DEVICE_ID])
        if not facts.is_on(wanted):
            ids = self._ids_on(wanted)
            if not ids:
                raise self._no_platform(wanted)
            raise PropertyError(
                f"{self.name}.{facts.index} is on platform {facts.platform_text}, not on "
                f"{wanted!r}, whose devices are {', '.join(f'{self.name}.{i}' for i in ids)}",
                OPENCL_PLATFORM.key,
                self.name,
            )

    def _no_platform(self, wanted: str) -> PropertyError:
        there = ", ".join(sorted({facts.platform_text for facts in self._facts}))
        return PropertyError(
            f"{self.name}: no platform with a device has {wanted!r} in its name or version; there "
            f"are {there}",
            OPENCL_PLATFORM.key,
            self.name,
        )


def _precisions(facts: DeviceFacts) -> list[str]:
    """List what it honours; bfloat16 is bits of float32, which every device can shift."""
    return [hint for hint in _HELD if hint != "f16" or facts.has_half]


def _capabilities(facts: DeviceFacts) -> list[str]:
    return ["FP32", *(["FP16"] if facts.has_half else []), "BF16", "DYNAMIC"]
