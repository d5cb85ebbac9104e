"""A Core with a device FAKE on the fake driver, a model of one kernel for it, and its runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from aioinfer import Core
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.runtime.properties.properties import Configuration
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FakeContext, FakeDriver

__all__ = ["CapturingPlugin", "draining", "negate", "negating", "pump", "serving"]

_PATIENCE = 5000


class CapturingPlugin(OpenClPlugin):
    """OPENCL on a driver that captures."""

    def captures(self, config: Configuration) -> bool:
        return True


def negate(x: Any, y: Any, count: int) -> None:
    """Compute what the kernel of ``negating`` does."""
    y.use().view(np.float32)[:count] = -x.use().view(np.float32)[:count]


def negating(x: np.ndarray, *, dynamic: bool = False) -> onnx.ModelProto:
    """Make a model that negates what is like ``x``."""
    model: onnx.ModelProto = model_of([operator("Neg", "x")], {"x": x}, dynamic=dynamic)
    return model


@contextmanager
def draining(core: Core, driver: FakeDriver) -> Iterator[Core]:
    """Close a Core at the end, when all is done that is enqueued.

    The driver's fused kernels compute what ``negating`` asks for, unless the test has set others.
    """
    driver.functions.setdefault("fused", negate)
    with core:
        yield core
        driver.is_eager = True
        for context in driver.contexts:
            context.run_all()


@contextmanager
def serving(driver: FakeDriver, plugin: type[OpenClPlugin] = OpenClPlugin) -> Iterator[Core]:
    """Open a Core and drain it; nothing was dropped before all was done."""
    FakeContext.dropped.clear()
    with draining(Core(), driver) as core:
        core.register_plugin("FAKE", lambda handle, name: plugin(handle, name, driver))
        yield core
    assert FakeContext.dropped == []


def pump(context: FakeContext, *requests: Any, seed: int = 1) -> None:
    """Have the device go on, in an order of the seed's, until these have ended."""
    order = random.Random(seed)
    idle_count = 0
    while idle_count < _PATIENCE:
        under_way = next((request for request in requests if not request.wait(0.0)), None)
        if under_way is None:
            return
        if not context.advance(order):
            idle_count += 1
            under_way.wait(0.01)  # other threads bind, or free a slot, which enqueues more
    raise AssertionError("the runs never end")
