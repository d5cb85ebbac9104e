"""Want of memory for any call of a load: an error of ours, and nothing is left behind."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.reference.executable_network import ReferenceNetwork
from aioinfer.backends.reference.plugin import ReferencePlugin
from aioinfer.errors import AioInferError, ClosedError, DeviceError
from exhaustive import all_but
from unit.runtime.models import tiny_model

OWN = Path(aioinfer.__file__).parents[1]
FOLDERS = tuple(str(OWN / name) for name in ("aioinfer", "executors", "runtime", "backends"))
DEVICES = [
    "CPU",
    "REFERENCE",
    "HETERO:REFERENCE.0,REFERENCE.1",
    "MULTI:REFERENCE.0,REFERENCE.1",
    "BATCH:REFERENCE(4)",
    "AUTO",
    "ONNXRUNTIME",
]
WAIT_S = 20.0  # a bound for what must happen; never slept through
STEP = 7
"""Of so many calls one fails, in a load of its own."""
BORDERS = {
    "load_network",
    "import_network",
    "loading",
    "undone_on_error",
    "shortage_as_error",
    "loading_failures_named",
}
"""Where no call of ours is under way yet, or none any more."""


class FailingCall:
    """A profiler under which the call with a number finds no memory, of all on this thread."""

    def __init__(self, number: int) -> None:
        self.count, self._number = 0, number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(FOLDERS) and code.co_name not in BORDERS
        if event != "call" or not is_ours:
            return
        self.count += 1
        if self.count == self._number:
            sys.setprofile(None)
            self.where = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
            raise MemoryError(f"for {self.where}")

    def during(self, load: Callable[[], Any]) -> Any:
        sys.setprofile(self)
        try:
            return load()
        finally:
            sys.setprofile(None)


def check_each_failing_call(core: aioinfer.Core, load: Callable[[], Any]) -> int:
    """Have calls of a load fail, one in each; count the loads of which one was told."""
    load().close()
    counted = FailingCall(0)
    counted.during(load).close()
    told_count = 0
    for number in range(1, counted.count, STEP):
        failing = FailingCall(number)
        try:
            failing.during(load).close()
        except AioInferError:
            told_count += 1
        except MemoryError as error:
            raise AssertionError(f"{error} is no error of ours") from error
        assert core.executors.executor_count == 0, f"leases are left after {failing.where}"
        assert not core.statistics().networks, f"a network is open after {failing.where}"
    network = load()
    x = np.ones((2, 3), np.float32)
    assert network.create_infer_request().infer_sync({"x": x})["y"].sum() == 12
    network.close()
    return told_count


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("device", all_but(DEVICES[:2], DEVICES))
def test_a_load_that_finds_no_memory_anywhere_leaves_nothing(device: str) -> None:
    with aioinfer.Core() as core:
        for name in ("CPU", "ONNXRUNTIME"):
            if name in device and (reason := core.why_missing(name)) is not None:
                pytest.skip(reason)
        model = tiny_model().SerializeToString()
        assert check_each_failing_call(core, lambda: core.load_network(model, device)) > 50


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_import_that_finds_no_memory_anywhere_leaves_nothing() -> None:
    with aioinfer.Core() as core:
        model = tiny_model().SerializeToString()
        with core.load_network(model, "HETERO:REFERENCE.0,REFERENCE.1") as network:
            blob = network.export()
        assert check_each_failing_call(core, lambda: core.import_network(blob)) > 30


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_functions_around_a_network_that_find_no_memory_leave_nothing() -> None:
    with aioinfer.Core() as core:
        model = tiny_model().SerializeToString()

        def load() -> aioinfer.ExecutableNetwork:
            functions = {"x": np.asarray}
            config = {"INPUT_SHAPES": {"x": [2, 3]}}
            return core.load_network(model, "REFERENCE", config, preprocess=functions)

        assert check_each_failing_call(core, load) > 50


def test_a_core_may_be_closed_while_another_thread_loads_pieces(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    core = aioinfer.Core()
    first = core.load_network(tiny_model(), "REFERENCE.1")
    are_closed, has_failed = threading.Event(), threading.Event()
    closed: list[Any] = []

    def close() -> None:
        try:
            closed.append(core.close())
        except AioInferError as error:
            closed.append(error)

    closer = threading.Thread(target=close)
    compile_network, release = ReferencePlugin.compile_network, ReferenceNetwork._release_device
    devices: list[str] = []

    def compiled(self: ReferencePlugin, model: Any, config: Any) -> Any:
        devices.append(config.device)
        if len(devices) == 2:  # one piece is loaded
            closer.start()
            assert are_closed.wait(WAIT_S)
        return compile_network(self, model, config)

    def released(self: ReferenceNetwork) -> None:
        if self is first:  # which is closed after the piece
            are_closed.set()
            assert has_failed.wait(WAIT_S)
        release(self)

    monkeypatch.setattr(ReferencePlugin, "compile_network", compiled)
    monkeypatch.setattr(ReferenceNetwork, "_release_device", released)
    with caplog.at_level(logging.WARNING, "aioinfer"), pytest.raises(ClosedError):
        core.load_network(tiny_model(), DEVICES[2], {"AFFINITY": {"add": "REFERENCE.1"}})
    has_failed.set()
    closer.join(WAIT_S)
    assert closed == [True]
    assert not caplog.records
    assert core.executors.executor_count == 0


def test_executors_that_a_warm_up_takes_are_given_back_by_the_network_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with aioinfer.Core() as core:

        def warm_up(network: ReferenceNetwork) -> None:
            assert network.callback_executor is not network._download_executor
            closer = threading.Thread(target=network.close)
            closer.start()
            closer.join(WAIT_S)
            raise MemoryError

        monkeypatch.setattr(ReferenceNetwork, "warm_up", warm_up)
        config = {"INPUT_SHAPES": {"x": (1, 3)}}
        with caplog.at_level(logging.WARNING, "aioinfer"), pytest.raises(DeviceError):
            core.load_network(tiny_model(), "REFERENCE", config)
        assert not caplog.records
        assert core.executors.executor_count == 0


@pytest.fixture
def held() -> Iterator[tuple[aioinfer.Core, Any, threading.Event]]:
    """A Core, a network of it that is idle, and one whose callback waits for the event."""
    core, is_held, may_go = aioinfer.Core(), threading.Event(), threading.Event()
    idle = core.load_network(tiny_model(), "CPU", {"NUM_STREAMS": 2})
    busy = core.load_network(tiny_model(), "REFERENCE")

    def callback(request: Any, error: BaseException | None) -> None:
        is_held.set()
        assert may_go.wait(WAIT_S)

    x = np.ones((1, 3), np.float32)
    request = idle.create_infer_request()
    request.start_async({"x": x})
    assert request.wait(WAIT_S)
    request = busy.create_infer_request()
    request.set_callback(callback)
    request.start_async({"x": x})
    assert is_held.wait(WAIT_S)
    yield core, idle, may_go
    may_go.set()
    core.close()


def test_what_a_core_has_closed_is_given_back_while_another_network_is_in_use(
    held: tuple[aioinfer.Core, Any, threading.Event],
) -> None:
    core, idle, may_go = held
    assert names_of_threads("CPU")
    assert not core.close(timeout_s=0)
    assert idle.is_closed
    assert not names_of_threads("CPU")
    assert core.executors.executor_count == 3  # streams, compile and callbacks of the other
    may_go.set()
    assert core.close()
    assert core.executors.executor_count == 0


@pytest.mark.parametrize("what", ["network", "core"])
def test_what_a_close_has_not_waited_for_is_given_back_when_it_has_ended(
    held: tuple[aioinfer.Core, Any, threading.Event], what: str
) -> None:
    core, idle, may_go = held
    (busy,) = [item for item in core._networks.shown() if item is not idle]
    closed, lent_count = busy if what == "network" else core, core.executors.executor_count
    plugin = core.plugin_of("REFERENCE")
    assert not closed.close(timeout_s=0)
    assert not closed.close(timeout_s=0)
    closers = [item for item in threading.enumerate() if item.name.startswith("aioinfer.close.")]
    assert len(closers) == (1 if what == "network" else 2)
    assert names_of_threads("REFERENCE")
    may_go.set()
    for closer in closers:
        closer.join(WAIT_S)
    assert not names_of_threads("REFERENCE")
    assert not names_of_threads("callbacks.")
    own_count = 2  # streams and callbacks: both networks compile on one executor
    assert core.executors.executor_count == (lent_count - own_count if what == "network" else 0)
    if what == "core":
        with pytest.raises(ClosedError):
            _ = plugin.core.plugin_names


def test_a_thread_that_cannot_be_had_leaves_the_rest_to_the_next_close(
    held: tuple[aioinfer.Core, Any, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _, may_go = held

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not core.close(timeout_s=0)
    assert names_of_threads("REFERENCE")
    may_go.set()
    assert core.close()
    assert not names_of_threads("REFERENCE")


def test_a_close_that_drains_gives_idle_networks_back_first(
    held: tuple[aioinfer.Core, Any, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    core, idle, may_go = held
    is_released, release = threading.Event(), type(idle)._release

    def released(network: Any) -> None:
        release(network)
        is_released.set()

    monkeypatch.setattr(type(idle), "_release", released)
    closer = threading.Thread(target=core.close)
    closer.start()
    try:
        assert is_released.wait(WAIT_S)
        assert not names_of_threads("CPU")
    finally:
        may_go.set()
        closer.join(WAIT_S)
    assert core.executors.executor_count == 0


def names_of_threads(device: str) -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith(device)]
