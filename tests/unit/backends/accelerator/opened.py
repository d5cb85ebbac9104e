"""Devices of the fake driver, opened, for what lives on one; and graphs to plan for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aioinfer.backends.accelerator.launching.kernel_programs import BuiltProgram
from aioinfer.backends.accelerator.memory.weight_store import WeightStore
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.backends.accelerator.queues.opened_device import OpenedDevice
from aioinfer.runtime.graph import Model, Node
from aioinfer.runtime.onnx_native import infer_types
from onnx_text import parse
from unit.backends.accelerator.fake_driver import FACTS, FakeContext, FakeDriver


class Opened:
    """A fake device with a network's weights; ``facts`` are changes of the driver's."""

    def __init__(self, **facts: int | str | frozenset[str]) -> None:
        self.driver = FakeDriver(replace(FACTS, **facts))  # type: ignore[arg-type]
        self.context: FakeContext = self.driver.open(self.driver.facts[0])
        self.device = OpenedDevice("FAKE.0", self.context)
        self.weights = WeightStore(self.device, "net")
        self.held: list[BuiltProgram] = []
        """Programs that are to stay."""

    @property
    def taken_bytes(self) -> int:
        return self.device.memory.taken_bytes

    def builder(self, model: Model, precision: Precision = F32) -> PlanBuilder:
        return PlanBuilder(
            model,
            self.weights,
            device="FAKE.0",
            facts=FACTS,
            precision=precision,
        )

    def plan(self, text: str, lower: Callable[[Node, PlanBuilder], None]) -> Plan:
        """Plan a model, given as text, with its kernels built and its constants uploaded."""
        made = self.builder(typed(text)).build(lower)
        self.held += self.device.programs.build(made.launches)
        self.weights.upload(made.constants)
        return made

    def close(self) -> None:
        self.device.close()


def typed(text: str) -> Model:
    """Parse a model and infer its types, as a plan's are."""
    model: Model = parse(text)
    infer_types(model)
    return model
