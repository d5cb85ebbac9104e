"""Loading without blocking the event loop, cancelled at any time; the Core closed meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.errors import ClosedError, PropertyError
from aioinfer.runtime.devices.plugin import CoreHandle
from aioinfer.runtime.testing.mock_plugin import MockNetwork
from unit.runtime.models import expected, tiny_model
from unit.runtime.toy_plugin import ToyPlugin

X = np.array([[-1, 2, 3]], np.float32)
WAIT_S = 20.0  # a bound for what must happen; never slept through


class WatchedNetwork(MockNetwork):
    """Tells when it was closed."""

    was_closed: threading.Event

    def _release_device(self) -> None:
        self.was_closed.set()


class SlowPlugin(ToyPlugin):
    """Compiles when the test says so."""

    def __init__(self, core: CoreHandle, name: str) -> None:
        super().__init__(core, name)
        self.started, self.go_on = threading.Event(), threading.Event()
        self.was_closed = threading.Event()

    def compile_network(self, model: Any, config: Any) -> WatchedNetwork:
        self.started.set()
        assert self.go_on.wait(WAIT_S)
        network = WatchedNetwork(model, config, self.core, self._device(config))
        network.was_closed = self.was_closed
        return network


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    """A Core whose threads are not counted: event loops keep their idle workers for a while."""
    with aioinfer.Core() as made:
        yield made


@pytest.fixture
def slow(core: aioinfer.Core) -> SlowPlugin:
    plugins: list[SlowPlugin] = []

    def make(handle: CoreHandle, name: str) -> SlowPlugin:
        plugins.append(SlowPlugin(handle, name))
        return plugins[-1]

    core.register_plugin("SLOW", make)
    core.get_metric("SLOW", "AVAILABLE_DEVICES")
    return plugins[0]


async def test_the_loop_goes_on_while_a_network_is_compiled(
    core: aioinfer.Core, slow: SlowPlugin
) -> None:
    loading = asyncio.create_task(
        core.load_network_async(tiny_model(), "SLOW", {"SPEED": 2}, name="detector")
    )
    assert await asyncio.to_thread(slow.started.wait, WAIT_S)
    assert not loading.done()
    slow.go_on.set()
    async with await loading as network:
        assert (network.get_config("SPEED"), network.name) == (2, "detector")
        np.testing.assert_array_equal((await network.infer(X))["y"], expected(X))


async def test_an_error_of_loading_reaches_the_task(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", ToyPlugin)
    with pytest.raises(PropertyError, match="no property 'SPED'"):
        await core.load_network_async(tiny_model(), "TOY", {"SPED": 2})


async def test_a_task_that_is_cancelled_on_asyncio_leaves_no_network_open(
    core: aioinfer.Core, slow: SlowPlugin
) -> None:
    loading = asyncio.create_task(core.load_network_async(tiny_model(), "SLOW"))
    assert await asyncio.to_thread(slow.started.wait, WAIT_S)
    loading.cancel()
    slow.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert await asyncio.to_thread(slow.was_closed.wait, WAIT_S)


def test_a_task_that_is_cancelled_on_trio_leaves_no_network_open(
    core: aioinfer.Core, slow: SlowPlugin
) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def load() -> None:
                with scope:
                    await core.load_network_async(tiny_model(), "SLOW")

            nursery.start_soon(load)
            assert await trio.to_thread.run_sync(slow.started.wait, WAIT_S)
            scope.cancel()
            slow.go_on.set()
        assert scope.cancelled_caught

    trio.run(main)
    assert slow.was_closed.is_set()


def test_a_network_that_is_ready_after_the_core_was_closed_is_closed(
    core: aioinfer.Core, slow: SlowPlugin
) -> None:
    errors: list[BaseException] = []

    def load() -> None:
        try:
            core.load_network(tiny_model(), "SLOW")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    assert slow.started.wait(WAIT_S)
    core.close()
    slow.go_on.set()
    thread.join()
    assert [type(error) for error in errors] == [ClosedError]
    assert "closed while the network was loaded" in str(errors[0])
    assert slow.was_closed.is_set()


async def test_closing_on_a_loop_waits_for_what_runs(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", ToyPlugin)
    network = await core.load_network_async(tiny_model(), "TOY")
    await asyncio.gather(*(network.infer(X) for _ in range(10)))
    await asyncio.gather(core.aclose(), core.aclose())
    assert network.is_closed
