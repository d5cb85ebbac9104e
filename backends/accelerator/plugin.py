"""What plugins of accelerators have in common: a driver's devices, opened by their first use."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from ...errors import DeviceError, PropertyError
from ...runtime.devices.extension import bind_kernels
from ...runtime.devices.plugin import CoreHandle, Plugin
from ...runtime.graph import DType, Model
from ...runtime.lowering.kernel_registry import KernelRegistry
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import DeadCode, PassReport, default_passes, run_passes
from ...runtime.passes.model_passes import model_passes
from ...runtime.properties.properties import (
    AUTO,
    DEVICE_ID,
    INFERENCE_PRECISION_HINT,
    NUM_STREAMS,
    PLAN_CACHE_BYTES,
    STANDARD_PROPERTIES,
    Configuration,
    Metric,
    Property,
)
from .compiler import CompileRules
from .executable_network import AcceleratorNetwork
from .plan_builder import PlanBuilder
from .precision import Precision
from .queues.driver import DeviceFacts, Driver, DriverError
from .queues.opened_device import OpenedDevice

__all__ = ["PRECISIONS", "AcceleratorPlugin"]

PRECISIONS = {
    "f32": Precision(),
    "tf32": Precision(has_tf32=True),
    "f16": Precision(DType.FLOAT16),
    "bf16": Precision(DType.BFLOAT16),
}
"""INFERENCE_PRECISION_HINT -> how float32 values are held and multiplied."""

SMALLEST_GROUP = 64
"""Work-items of one group that kernels with local memory count on."""


class AcceleratorPlugin(Plugin):
    """Compiles a model for each shape into launches on a device's own queues.

    ``kernels`` answer queries and lower nodes. A device is opened by its first network and stays
    open as long as the plugin. ``make_driver`` may raise DeviceError, as may the search for
    devices: then the plugin cannot start, or, where ``plans_without_device``, has no devices, says
    why, and still answers queries.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared for declared in STANDARD_PROPERTIES if declared is not PLAN_CACHE_BYTES
    )
    kernels: ClassVar[KernelRegistry[PlanBuilder]]
    plans_without_device: ClassVar[bool] = False
    most_streams: ClassVar[int] = 1
    """Compute queues of a device that a network may use."""

    def __init__(self, core: CoreHandle, name: str, make_driver: Callable[[], Driver]) -> None:
        super().__init__(core, name)
        self.facts: Sequence[DeviceFacts] = ()
        """What the devices say of themselves, by their numbers."""
        self._driver: Driver | None = None
        self._missing: DeviceError | None = None
        self._opened: dict[int, OpenedDevice] = {}
        self._opening = threading.Lock()
        try:
            self._driver = make_driver()
            self.facts = self._driver.find_devices()
        except DeviceError as error:
            if not self.plans_without_device:
                raise
            self._missing = error

    @abstractmethod
    def rules(self, facts: DeviceFacts, config: Configuration) -> CompileRules:
        """Return what a device does with a model; for one network."""

    @abstractmethod
    def precision_refusal(self, hint: str, facts: DeviceFacts) -> str | None:
        """Return why a device cannot honour an INFERENCE_PRECISION_HINT, or None."""

    def disabled_passes(self, config: Configuration) -> Collection[str]:
        """(optional) Name the passes to leave out."""
        return ()

    def captures(self, config: Configuration) -> bool:
        """(optional) True if a network's launches are captured and replayed."""
        return False

    def spins(self, config: Configuration) -> bool:
        """(optional) True if threads that wait for a network's runs may keep a core busy."""
        return False

    def best_stream_count(self, config: Configuration) -> int:
        """(optional) Choose how many compute queues a network uses by default."""
        return 1

    def stream_range(self) -> tuple[int, int]:
        return 1, self.most_streams

    def device_ids(self) -> list[str]:
        return [str(facts.index) for facts in self.facts]

    def why_no_device(self) -> str | None:
        return None if self._missing is None else f"{self.name} has no device: {self._missing}"

    def check_device_id(self, device_id: str) -> None:
        """Raise DeviceError for an id that is not there.

        Where there is no device, any number is one that a model may be planned for.
        """
        if self._missing is None or not device_id.isdecimal():
            super().check_device_id(device_id)

    def full_device_name(self, device_id: str) -> str:
        facts = self.facts_of(device_id)
        return f"{facts.name} ({facts.platform})"

    def metrics(self) -> Sequence[Metric]:
        return (
            self.fact("OPTIMIZATION_CAPABILITIES", self.abilities, "Types and abilities."),
            self.fact(
                "DEVICE_TYPE",
                lambda facts: facts.kind,
                "'cpu', or an accelerator: 'integrated' in the host's memory, or 'discrete'.",
            ),
            self.fact(
                "DRIVER_VERSION",
                lambda facts: facts.driver_version,
                "The version of the device's driver.",
            ),
            self.fact(
                "DEVICE_TOTAL_MEM_SIZE",
                lambda facts: facts.memory_bytes,
                "The device's memory, in bytes.",
            ),
        )

    def fact(self, key: str, read: Callable[[DeviceFacts], object], doc: str) -> Metric:
        """Make a metric of something that a device says of itself."""
        return Metric(key, lambda options: read(self.facts_of(self._id_of(options))), doc)

    def abilities(self, facts: DeviceFacts) -> list[str]:
        """List the OPTIMIZATION_CAPABILITIES of a device."""
        hints = [hint for hint in PRECISIONS if self.precision_refusal(hint, facts) is None]
        return [*(_ABILITIES[hint] for hint in hints), "DYNAMIC", "EXPORT_IMPORT"]

    def check_values(self, config: Configuration) -> None:
        streams, most = config[NUM_STREAMS], self.most_streams
        if streams != AUTO and (not isinstance(streams, int) or not 1 <= streams <= most):
            queues = "one compute queue" if most == 1 else f"1 to {most} compute streams"
            raise PropertyError(
                f"{self.name} has {queues} for each network; leave NUM_STREAMS at AUTO "
                f"(given: {streams})",
                NUM_STREAMS.key,
                self.name,
                value=streams,
            )
        if config["INFERENCE_NUM_THREADS"]:
            raise PropertyError(
                f"{self.name} leaves threads to the driver; leave INFERENCE_NUM_THREADS at 0 "
                f"(given: {config['INFERENCE_NUM_THREADS']})",
                "INFERENCE_NUM_THREADS",
                self.name,
                value=config["INFERENCE_NUM_THREADS"],
            )
        if self._missing is None:
            hint = config[INFERENCE_PRECISION_HINT]
            self._refuse(config, hint, self.facts_of(config[DEVICE_ID]))

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        copied, disabled = model.to_rewrite(), self.disabled_passes(config)
        if self.extensions:
            bind_kernels(copied, self.extensions)
        folding = [item for item in model_passes() if item.name not in disabled]
        return copied, run_passes(copied, (*default_passes(), *folding, DeadCode()))

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return self.kernels.unsupported_nodes(model.graph)

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        self.facts_of(config[DEVICE_ID])  # before the model is taken apart
        return super().load_network(model, config)

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        self.kernels.refuse_unsupported(model.graph, config.device)
        opened = self._open(config[DEVICE_ID])
        opened.health.refuse_if_lost()
        wanted = config[NUM_STREAMS]
        stream_count = self.best_stream_count(config) if wanted == AUTO else int(wanted)
        config = config.with_values({NUM_STREAMS: stream_count})
        return AcceleratorNetwork(
            model,
            opened,
            PRECISIONS[config[INFERENCE_PRECISION_HINT]],
            self.rules(opened.facts, config),
            config,
            self.core,
            stream_count=stream_count,
            captures=self.captures(config),
            spins=self.spins(config),
        )

    def close(self) -> None:
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()
        if self._missing is not None:  # the frames of its traceback lead to the Core
            self._missing.__traceback__ = self._missing.__cause__ = None
            self._missing.__context__ = None

    def facts_of(self, device_id: str) -> DeviceFacts:
        """Return what a device says of itself; '' is the first. DeviceError if there is none."""
        missing = self.why_no_device()
        if missing is not None:
            raise DeviceError(missing) from self._missing
        return self.facts[int(device_id or self.device_ids()[0])]

    def _refuse(self, config: Configuration, hint: str, facts: DeviceFacts) -> None:
        reason = self.precision_refusal(hint, facts)
        if reason is None:
            return
        known = [other for other in PRECISIONS if self.precision_refusal(other, facts) is None]
        raise PropertyError(
            f"{config.device} cannot honour INFERENCE_PRECISION_HINT={hint!r}: {reason}; it has "
            f"{', '.join(known)}",
            INFERENCE_PRECISION_HINT.key,
            self.name,
            value=hint,
        )

    def _open(self, device_id: str) -> OpenedDevice:
        facts = self.facts_of(device_id)
        assert self._driver is not None
        name = f"{self.name}.{facts.index}"
        if facts.work_group_size < SMALLEST_GROUP:
            raise DeviceError(
                f"{name} ({facts.name}) runs groups of {facts.work_group_size} work-items, and "
                f"kernels need {SMALLEST_GROUP}; use another platform or device"
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


_ABILITIES = {"f32": "FP32", "tf32": "TF32", "f16": "FP16", "bf16": "BF16"}
