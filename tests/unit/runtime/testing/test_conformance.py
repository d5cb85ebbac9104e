"""The suite itself: a right device passes it, and each kind of wrong device is found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest

import aioinfer
from aioinfer.executors import NOW, Lane, Ready, StreamsConfig, StreamsExecutor
from aioinfer.runtime.network.executable_network import Slot
from aioinfer.runtime.runs.stage import Stage
from aioinfer.runtime.testing.mock_plugin import MockNetwork
from aioinfer.testing import ConformanceCase, MockDevices, MockPlugin, conformance_cases

CASES = {case.name: case for case in conformance_cases()}


@pytest.fixture(scope="module")
def toy() -> Iterator[StreamsExecutor]:
    with StreamsExecutor(StreamsConfig("TOY", 2)) as executor:
        yield executor


@pytest.fixture(scope="module")
def core(toy: StreamsExecutor) -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        made.register_plugin("TOY", MockDevices(1, executor=toy).make_plugin)
        yield made


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_a_device_of_a_few_lines_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    case.run(core, "TOY")


def test_cases_have_names_of_their_own() -> None:
    assert len(CASES) == len(conformance_cases())
    assert all(str(case) == case.name for case in CASES.values())


class BadSlot(Slot):
    """Computes on a shared executor, and then ``spoil`` spoils what it delivers."""

    def __init__(self, executor: StreamsExecutor, evaluate: Any, spoil: Any) -> None:
        self.evaluate, self.spoil = evaluate, spoil
        self.stages = (Stage("compute", executor, self.compute),)

    def compute(self, _lane: Lane) -> Ready:
        for name, value in self.spoil(self.evaluate(self.bindings.inputs)).items():
            self.bindings.deliver(name, value)
        return NOW


class BadNetwork(MockNetwork):
    spoil: Callable[[dict[str, Any]], dict[str, Any]]

    def _provide_slots(self, slots: Any) -> None:
        executor, spoil = slots[0].stages[0].executor, type(self).spoil
        super()._provide_slots([BadSlot(executor, slots[0]._evaluate, spoil) for _ in slots])


class BadPlugin(MockPlugin):
    network: type[MockNetwork]

    def compile_network(self, model: Any, config: Any) -> MockNetwork:
        return self.network(model, config, self.core, self._device(config))


def off_by_one(outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value + 1 if value.dtype.kind == "f" else value for name, value in outputs.items()
    }


def widened(outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in outputs.items()
    }


_kept: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}


def reused(outputs: dict[str, Any]) -> dict[str, Any]:
    for name, value in outputs.items():
        memory = _kept.setdefault((name, value.shape), np.empty_like(value))
        memory[...] = value
    return {name: _kept[name, value.shape] for name, value in outputs.items()}


@pytest.mark.parametrize(
    ("spoil", "found_by"),
    [
        (off_by_one, "wait_means_that_the_results_are_there"),
        (off_by_one, "elementwise_agrees_with_reference"),
        (off_by_one, "any_memory_layout_gives_the_right_answer"),
        (off_by_one, "a_node_with_a_yes_compiles_alone"),
        (off_by_one, "hundreds_of_tasks_share_a_network"),
        (widened, "matrices_agrees_with_reference"),
        (reused, "results_belong_to_the_caller"),
    ],
)
def test_a_wrong_device_is_found_out(toy: StreamsExecutor, spoil: Any, found_by: str) -> None:
    network = type("SpoilingNetwork", (BadNetwork,), {"spoil": staticmethod(spoil)})
    plugin = type("SpoilingPlugin", (BadPlugin,), {"network": network})
    devices = MockDevices(1, executor=toy).devices
    with aioinfer.Core() as core:
        core.register_plugin("BAD", lambda handle, name: plugin(handle, name, devices))
        with pytest.raises(AssertionError):
            CASES[found_by].run(core, "BAD")


def test_a_model_that_the_device_refuses_is_a_skip_with_its_reason(toy: StreamsExecutor) -> None:
    devices = MockDevices(1, executor=toy)
    devices[0].refused_ops["StringConcat"] = "it has no strings"
    with aioinfer.Core() as core:
        core.register_plugin("TOY", devices.make_plugin)
        with pytest.raises(SkipTest, match="'stringconcat_0' of strings: it has no strings"):
            CASES["strings_agrees_with_reference"].run(core, "TOY")


def test_a_device_that_says_yes_and_cannot_load_does_not_conform(toy: StreamsExecutor) -> None:
    class LyingPlugin(MockPlugin):
        def compile_network(self, model: Any, config: Any) -> MockNetwork:
            raise ValueError("out of kernels")

    devices = MockDevices(1, executor=toy).devices
    with aioinfer.Core() as core:
        core.register_plugin("LIAR", lambda handle, name: LyingPlugin(handle, name, devices))
        with pytest.raises(ValueError, match="out of kernels"):
            CASES["wait_means_that_the_results_are_there"].run(core, "LIAR")
