"""A plugin of three devices with a key and a fact of its own, and a value that it cannot honour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from aioinfer.errors import PropertyError
from aioinfer.executors import ImmediateExecutor
from aioinfer.runtime.devices.plugin import CoreHandle
from aioinfer.runtime.properties.properties import Configuration, Metric, Property, parse_integer
from aioinfer.testing import MockDevices, MockPlugin

SPEED = Property("SPEED", parse_integer(0), 7, "How fast it goes.")


class ToyPlugin(MockPlugin):
    """TOY.0, TOY.1 and TOY.2 compute at once, in the thread that starts the run."""

    properties: ClassVar[Sequence[Property[Any]]] = (SPEED,)

    def __init__(self, core: CoreHandle, name: str) -> None:
        super().__init__(core, name, MockDevices(3, executor=ImmediateExecutor("toy")).devices)
        self.close_count = 0

    def check_values(self, config: Configuration) -> None:
        if config["INFERENCE_PRECISION_HINT"] != "f32":
            raise PropertyError(
                f"{self.name} knows f32 only; leave INFERENCE_PRECISION_HINT out",
                "INFERENCE_PRECISION_HINT",
                self.name,
            )

    def metrics(self) -> Sequence[Metric]:
        def weight(options: Mapping[str, Any]) -> str:
            return f"{options.get('DEVICE_ID', '?')}: 5 {options.get('UNIT', 'kg')}"

        return (Metric("WEIGHT", weight, "How heavy a device is.", options=("UNIT",)),)

    def close(self) -> None:
        self.close_count += 1
