"""What a user reads where a driver is missing, a kernel does not build, or memory runs out."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.elementwise.elementwise_operators import (
    ELEMENTWISE_OPERATORS,
    ElementwiseOperator,
)
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl import pyopencl_driver
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import DType
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FakeDriver

X = {"x": np.zeros((2, 8), np.float32)}
W = {"w": np.ones((1, 8), np.float32), "v": np.ones((2, 1), np.float32)}


class LibraryError(Exception):
    code = -1001


class Library:
    """As much of pyopencl as is asked before there is a device."""

    Error = LibraryError
    device_type = SimpleNamespace(CPU=2)

    def __init__(self, platforms: list[Any] | None) -> None:
        self._platforms = platforms

    def get_platforms(self) -> list[Any]:
        if self._platforms is None:
            raise LibraryError("PLATFORM_NOT_FOUND_KHR")
        return self._platforms

    def Context(self, devices: list[Any]) -> None:  # noqa: N802
        return

    def Program(self, context: None, source: str) -> Any:  # noqa: N802
        def build(options: list[str]) -> None:
            raise LibraryError("BUILD_PROGRAM_FAILURE\nerror: unknown target CPU 'znver9'")

        return SimpleNamespace(build=build)


def platform(name: str, *devices: Any) -> Any:
    return SimpleNamespace(name=name, get_devices=lambda: devices)


class OldDevice:
    name, type = "pthread-znver9", Library.device_type.CPU


WAY_OUT = r"pip install aioinfer\[opencl\]"


@pytest.mark.parametrize(
    ("platforms", "words"),
    [
        (None, rf"no OpenCL driver is installed \(PLATFORM_NOT_FOUND_KHR\); .*{WAY_OUT}"),
        ([], rf"platforms: none\); .*{WAY_OUT}"),
        ([platform("Empty ")], rf"platforms: Empty\); .*{WAY_OUT}"),
        (
            [platform("PoCL", OldDevice())],
            r"PoCL; pthread-znver9: it cannot compile \(error: unknown target CPU 'znver9'\)\); "
            "install a newer driver",
        ),
    ],
    ids=["no driver", "no platform", "no device", "a device that cannot compile"],
)
def test_a_driver_that_is_missing_says_what_to_install(
    platforms: list[Any] | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyopencl_driver, "_library", lambda: Library(platforms))
    with Core() as core:
        core.register_plugin("MINE", OpenClPlugin)
        assert not any(name.startswith("MINE") for name in core.available_devices)
        with pytest.raises(DeviceError, match=rf"device MINE cannot start: .*{words}"):
            core.load_network(model_of([operator("Neg", "x")], X), "MINE")


def test_a_kernel_that_does_not_build_is_named_with_the_compilers_words(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ElementwiseOperator(lambda x, step, dtype: f"no_such_function({x[0]})", {DType.FLOAT32})
    monkeypatch.setitem(ELEMENTWISE_OPERATORS, "Mish", wrong)  # type: ignore[arg-type]
    nodes = [operator("Softmax", "x", outputs=["s"]), operator("Mish", "s")]
    with pytest.raises(DeviceError) as caught:
        core.load_network(model_of(nodes, X), "OPENCL")
    text = str(caught.value)
    assert re.match(
        r"OPENCL\.\d+ cannot build the kernel 'fused_\w+' of Mish \(node 'Mish'\): ", text
    )
    assert "no_such_function" in text
    assert "run the node on another device (HETERO's AFFINITY)" in text


@pytest.fixture
def driver() -> FakeDriver:
    made = FakeDriver()
    made.functions["fused"] = lambda *arguments: None
    return made


def two_weights(dynamic: bool = False) -> Any:
    nodes = [operator("Add", "x", "w", outputs=["s"]), operator("Mul", "s", "v")]
    return model_of(nodes, X, constants=W, dynamic=dynamic)


def test_memory_that_fails_at_any_point_of_a_load_is_given_back(
    driver: FakeDriver, fake_core: Core
) -> None:
    fake_core.load_network(two_weights(), "FAKE").close()
    count = driver.allocation_count
    assert count == 2 + 2 * 2  # weights; arena and staging memory of two slots
    (context,) = driver.contexts
    for failing in range(1, count + 1):
        at = driver.allocation_count + failing
        driver.allocation_errors[at] = DriverError(
            ErrorKind.OUT_OF_MEMORY, "MEM_OBJECT_ALLOCATION_FAILURE"
        )
        with pytest.raises(
            DeviceError,
            match=r"FAKE\.0 failed while taking .*: MEM_OBJECT_ALLOCATION_FAILURE; close other",
        ):
            fake_core.load_network(two_weights(), "FAKE")
        assert context.alive == []
    fake_core.load_network(two_weights(), "FAKE")


def test_memory_that_fails_in_a_run_fails_that_run_alone(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(two_weights(dynamic=True), "FAKE") as network:
        request = network.create_infer_request()
        for failing in (1, 2, 3, 2):  # a weight, the other, the arena, the staging memory
            at = driver.allocation_count + failing
            driver.allocation_errors[at] = DriverError(ErrorKind.OUT_OF_MEMORY, "no room")
            with pytest.raises(DeviceError, match="no room; close other networks"):
                request.infer_sync(X)
        request.infer_sync(X)
    assert driver.contexts[0].alive == []


def test_results_for_which_the_host_has_no_memory_fail_their_run_alone(
    fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("Unable to allocate 64 B")

    with fake_core.load_network(two_weights(), "FAKE") as network:
        request = network.create_infer_request()
        with monkeypatch.context() as patch:
            patch.setattr(network.pool, "empty", refuse)
            with pytest.raises(DeviceError, match=r"running .* on FAKE.*Unable to allocate 64"):
                request.infer_sync(X)
        request.infer_sync(X)
