"""Libraries left out one by one: the same numbers by another way, and a device that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import DeviceFacts
from aioinfer.runtime.devices.device_name import parse_device
from gpu.device import DEVICE
from gpu.oracle import drawn, relative_error

BOUNDS = {"f32": 1e-5, "f16": 1e-2}
LEFT_OUT = (
    ("cudnn",),
    ("cublaslt",),
    ("cublas",),
    ("cublaslt", "cublas"),
    ("cudnn", "cublaslt", "cublas"),
)


class DriverWithout:
    """The device's driver, without the libraries that are named."""

    def __init__(self, driver: Any, names: tuple[str, ...]) -> None:
        self._driver, self._names = driver, frozenset(names)

    def find_devices(self) -> list[DeviceFacts]:
        return [
            replace(facts, libraries=facts.libraries - self._names)
            for facts in self._driver.find_devices()
        ]

    def open(self, facts: DeviceFacts) -> Any:
        return ContextWithout(self._driver.open(facts), facts)


class ContextWithout:
    """An opened device that tells the facts it was opened with."""

    def __init__(self, context: Any, facts: DeviceFacts) -> None:
        self._context, self.facts = context, facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def libraries_there() -> frozenset[str]:
    from aioinfer.backends.cuda.cupy_driver import CupyDriver

    return frozenset().union(*(facts.libraries for facts in CupyDriver().find_devices()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", LEFT_OUT, ids="+".join)
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("network_name", ["resnet50", "mobilenet_v2", "minilm_l6"])
def test_a_network_gives_the_same_without_a_library(
    core: Core, network_name: str, precision: str, names: tuple[str, ...]
) -> None:
    from aioinfer.backends.cuda.cupy_driver import CupyDriver
    from aioinfer.backends.cuda.plugin import CudaPlugin

    missing = set(names) - libraries_there()
    if missing:
        pytest.skip(f"not here, so it cannot be left out: {', '.join(sorted(missing))}")
    case = drawn(network_name, 1)
    with Core() as made:
        made.register_plugin(
            "BARE",
            lambda handle, name: CudaPlugin(handle, name, DriverWithout(CupyDriver(), names)),
        )
        made.set_config("BARE", {"DEVICE_ID": parse_device(DEVICE).id or ""})
        assert not set(names) & set(made.get_metric("BARE", "CUDA_LIBRARIES"))
        config = {"INFERENCE_PRECISION_HINT": precision}
        with made.load_network(case.model, "BARE", config) as network:
            found = network.create_infer_request().infer_sync(dict(case.inputs))
    assert relative_error(found, case.wanted) < BOUNDS[precision]
