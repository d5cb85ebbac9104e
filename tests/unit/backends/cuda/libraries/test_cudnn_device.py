"""Whether cuDNN is there, and the plans of a device, which all its networks share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.cuda.libraries import cudnn_attention, cudnn_conv, cudnn_device
from aioinfer.backends.cuda.libraries.cudnn_graph import PlanCandidate
from aioinfer.backends.cuda.plan_workers import PlanWorkers
from unit.backends.cuda.libraries.conv_operation import attention_operation, conv_operation
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend

FACTS: dict[str, Any] = {
    "deviceName": "a GPU",
    "deviceVer": 900,
    "multiProcessorCount": 132,
    "l2CacheSize": 1,
}


class Frontend(FakeFrontend):
    """The fake, as a module that knows a device."""

    Handle = object

    def backend_version(self) -> int:
        return 91900

    def create_device_properties(self, device: Any) -> Any:
        if device == 5:
            raise RuntimeError("no such device")
        return SimpleNamespace(serialize=lambda: json.dumps({**FACTS, "number": device}))


@pytest.fixture
def frontend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Frontend]:
    """Give a fake frontend, with processes that are not started, and nothing kept on disk."""
    made = Frontend("eng0")
    monkeypatch.setitem(sys.modules, "cudnn", made)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setenv("AIOINFER_CACHE_DIR", str(tmp_path / "caches"))
    monkeypatch.setattr(sys, "executable", "")
    cudnn_device.close()
    yield made
    cudnn_device.close()


def test_what_is_missing_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)  # type: ignore[arg-type]
    said = cudnn_conv.find_missing()
    assert said == cudnn_attention.find_missing()
    assert said is not None
    assert said.endswith("pip install nvidia-cudnn-cu13, and --no-deps nvidia-cudnn-frontend")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (SimpleNamespace(__version__="1.20.0"), "frontend 1.20.0 is older than 1.27"),
        (SimpleNamespace(Handle=object), "the library cuDNN cannot be loaded"),
    ],
)
def test_an_old_frontend_and_one_without_its_library_are_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch, module: Any, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", module)
    said = cudnn_device.find_missing()
    assert said is not None
    assert reason in said


def test_cudnn_is_installed_if_frontend_and_library_are(frontend: Frontend) -> None:
    assert cudnn_conv.find_missing() is None


def test_a_convolution_is_planned_for_its_device(frontend: Frontend) -> None:
    planned = cudnn_conv.plan(conv_operation(), 1)
    planned.enqueue([1, 2, 3, 4, 5], 9)
    assert frontend.executed[0][1] == (1, 2, 3, 4)


def test_plans_are_built_and_loaded_without_touching_the_device(frontend: Frontend) -> None:
    cudnn_conv.plan(conv_operation(), 1)
    planned = cudnn_attention.plan(attention_operation(), 1)
    assert frontend.handles == []
    assert {tuple(graph.settings)[-2:] for graph in frontend.graphs} == {
        ("device_property", "sm_version")
    }
    planned.enqueue([1, 2, 3, 4, 5], 9)
    assert [handle.stream for handle in frontend.handles] == [9]


def test_plans_are_loaded_for_what_the_device_says_and_not_for_its_json(
    frontend: Frontend,
) -> None:
    cudnn_conv.plan(conv_operation(), 1)
    (loading,) = (graph for graph in frontend.graphs if graph.blob is not None)
    assert json.loads(loading.settings["device_property"].serialize())["number"] == 1


def test_plans_of_a_device_share_handles_and_those_of_others_do_not(frontend: Frontend) -> None:
    for device, activation in ((0, "relu"), (0, "tanh"), (1, "relu")):
        planned = cudnn_conv.plan(conv_operation(activation=activation), device)
        planned.enqueue([1, 2, 3, 4, 5], 9)
    first, second, other = (noted[3] for noted in frontend.executed)
    assert first is second
    assert first is not other


def test_equal_devices_share_what_is_on_disk(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def build(pool: PlanWorkers, description: Any, device: str, *limits: Any) -> Any:
        asked.append(device)
        return [PlanCandidate("eng0", 0, (), 0, b"plan eng0")]

    monkeypatch.setattr(PlanWorkers, "build", build)
    for device in (0, 1):
        cudnn_conv.plan(conv_operation(), device)
    assert [json.loads(device)["number"] for device in asked] == [0]
    monkeypatch.setitem(FACTS, "multiProcessorCount", 60)
    cudnn_conv.plan(conv_operation(), 2)
    assert len(asked) == 2


def test_a_device_that_cudnn_does_not_know_is_refused(frontend: Frontend) -> None:
    with pytest.raises(DriverError, match=r"cannot use CUDA\.5: no such device"):
        cudnn_conv.plan(conv_operation(), 5)


def test_closing_ends_the_processes_and_the_next_plan_starts_anew(frontend: Frontend) -> None:
    cudnn_conv.plan(conv_operation(), 0)
    ended: list[str] = []
    pool = cudnn_device._workers
    assert isinstance(pool, PlanWorkers)
    cudnn_device.close()
    ended.append(repr(pool))
    cudnn_conv.plan(conv_operation(), 0).enqueue([1, 2, 3, 4, 5], 9)
    assert ended == ["<PlanWorkers closed>"]
    assert cudnn_device._workers is not pool
