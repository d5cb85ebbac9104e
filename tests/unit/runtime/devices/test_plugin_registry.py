"""Plugins: found in packages, made at most once, and what becomes of those that cannot start."""

from __future__ import annotations

import errno
import gc
import logging
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeviceError, NotSupportedError
from aioinfer.runtime.devices import installed_devices
from aioinfer.runtime.devices.plugin import CoreHandle, Plugin
from aioinfer.runtime.graph import Model
from aioinfer.runtime.properties.properties import Configuration
from unit.runtime.models import expected, tiny_model
from unit.runtime.toy_plugin import ToyPlugin

X = np.array([[-1, 2, 3]], np.float32)

InstallPackage = Callable[..., None]


class Maker:
    """Counts how often a plugin is made, and keeps what was made."""

    def __init__(self) -> None:
        self.made: list[ToyPlugin] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, core: CoreHandle, name: str) -> Plugin:
        self.gate.wait()
        self.made.append(ToyPlugin(core, name))
        return self.made[-1]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallPackage:
    """Put a package where pip would: ``install("acme", "FAST = acme:Fast", code)``."""

    def install_package(package: str, entry_point: str, code: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[aioinfer.backends]\n{entry_point}\n")
        (folder / f"{package}.py").write_text(textwrap.dedent(code))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install_package


ACME = """
from aioinfer.executors import ImmediateExecutor
from aioinfer.testing import MockDevices, MockPlugin

class Fast(MockPlugin):
    def __init__(self, core, name):
        super().__init__(core, name, MockDevices(1, executor=ImmediateExecutor("fast")).devices)
"""


def test_a_third_partys_package_adds_a_device(install: InstallPackage) -> None:
    install("acme_fast", "FAST = acme_fast:Fast", ACME)
    with aioinfer.Core() as core:
        assert "FAST" in core.plugin_names
        assert "acme_fast" not in sys.modules  # only a look at the device loads it
        assert "FAST" in core.available_devices
        with core.load_network(tiny_model(), "FAST") as network:
            outputs = network.create_infer_request().infer_sync(X)
        np.testing.assert_array_equal(outputs["y"], expected(X))
    assert "acme_fast" in sys.modules
    sys.modules.pop("acme_fast")


@pytest.mark.parametrize(
    ("entry_point", "code", "reason"),
    [
        ("BAD = acme_bad:Missing", "", "has no attribute 'Missing'"),
        ("BAD = acme_bad:Fast", "import no_such_driver_library", "no_such_driver_library"),
        ("BAD = acme_bad:Fast", "def Fast(core, name): raise OSError('libfast.so')", "libfast.so"),
        ("BAD = acme_bad:Fast", "def Fast(core, name): raise KeyError", "KeyError"),
        ("BAD = acme_bad:Fast", "class Fast: pass", "takes no arguments"),
        ("BAD = acme_bad:make", "def make(core, name): return 5", "made a int, and an aioinfer.Pl"),
    ],
)
def test_a_package_that_fails_hides_only_its_own_device(
    install: InstallPackage, entry_point: str, code: str, reason: str
) -> None:
    install("acme_bad", entry_point, code)
    with aioinfer.Core() as core:
        assert "REFERENCE.0" in core.available_devices
        assert not [name for name in core.available_devices if name.startswith("BAD")]
        assert reason in str(core.why_missing("BAD"))
        with pytest.raises(DeviceError, match=f"device BAD cannot start: .*{reason}"):
            core.load_network(tiny_model(), "BAD")
    sys.modules.pop("acme_bad", None)


def test_an_installed_name_that_cannot_be_a_device_is_left_out(
    install: InstallPackage, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme_dotted", "MY.DEVICE = acme_dotted:Fast", ACME)
    with caplog.at_level(logging.WARNING, "aioinfer"), aioinfer.Core() as core:
        assert "REFERENCE" in core.plugin_names
        assert not [name for name in core.plugin_names if "MY" in name]
    assert "'MY.DEVICE' cannot be a plugin's name" in caplog.text


def test_the_second_installed_plugin_of_a_name_is_left_out(
    install: InstallPackage, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme_one", "TWICE = acme_one:Fast", ACME)
    install("acme_two", "TWICE = acme_two:Fast", ACME)
    with caplog.at_level(logging.WARNING, "aioinfer"), aioinfer.Core() as core:
        assert core.plugin_names.count("TWICE") == 1
    assert "another package has a plugin of that name" in caplog.text


def test_packages_that_come_and_go_beside_others_are_seen_by_the_next_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with aioinfer.Core() as core:
        assert "LATE" not in core.plugin_names
    info = tmp_path / "acme_late-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[aioinfer.backends]\nLATE = acme_late:Fast\n")
    with aioinfer.Core() as core:
        assert "LATE" in core.plugin_names
    shutil.rmtree(info)
    with aioinfer.Core() as core:
        assert "LATE" not in core.plugin_names


def test_metadata_of_packages_is_read_once_while_none_comes_or_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with aioinfer.Core() as core:
        names = core.plugin_names
    monkeypatch.setattr(installed_devices, "metadata_folders", None)
    with aioinfer.Core() as core:
        assert core.plugin_names == names


def test_a_plugin_is_made_by_the_first_look_and_only_once(core: aioinfer.Core) -> None:
    maker = Maker()
    core.register_plugin("TOY", maker)
    assert "TOY" in core.plugin_names
    assert not maker.made
    core.get_metric("TOY", "FULL_DEVICE_NAME")
    core.get_config("TOY.1", "SPEED")
    assert core.available_devices[-3:] == ["TOY.0", "TOY.1", "TOY.2"]
    assert len(maker.made) == 1


def test_many_threads_that_ask_at_once_get_one_plugin(core: aioinfer.Core) -> None:
    maker = Maker()
    maker.gate.clear()
    core.register_plugin("TOY", maker)
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(core.get_metric("TOY", "FULL_DEVICE_NAME")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert core.get_metric("REFERENCE", "AVAILABLE_DEVICES")  # a slow plugin holds up nobody else
    maker.gate.set()
    for thread in threads:
        thread.join()
    assert answers == ["mock device 0"] * 8
    assert len(maker.made) == 1


def test_a_plugin_that_cannot_start_is_tried_once_and_its_reason_kept(core: aioinfer.Core) -> None:
    tries: list[str] = []

    def fail(handle: CoreHandle, name: str) -> Plugin:
        tries.append(name)
        raise DeviceError("no driver of version 5 or newer; install it")

    core.register_plugin("TOY", fail)
    for _ in range(3):
        with pytest.raises(DeviceError, match="device TOY cannot start: no driver of ver") as told:
            core.load_network(tiny_model(), "TOY.1")
        assert isinstance(told.value.__cause__, DeviceError)
    assert core.why_missing("TOY") == str(told.value)
    assert not [name for name in core.available_devices if name.startswith("TOY")]
    assert tries == ["TOY"]


def test_a_plugin_that_cannot_list_its_devices_hides_only_them(core: aioinfer.Core) -> None:
    class Blind(ToyPlugin):
        def device_ids(self) -> list[str]:
            raise ConnectionError("the bus does not answer")

    core.register_plugin("BLIND", Blind)
    assert "REFERENCE.0" in core.available_devices
    assert not [name for name in core.available_devices if name.startswith("BLIND")]
    assert "the bus does not answer" in str(core.why_missing("BLIND"))
    assert core.why_missing("REFERENCE") is None


class PlanningPlugin(ToyPlugin):
    """Answers queries although it has no device."""

    def device_ids(self) -> list[str]:
        return []

    def why_no_device(self) -> str:
        return "the slot is empty; put a toy in"

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return {}


def test_a_plugin_without_a_device_may_answer_queries(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", PlanningPlugin)
    answers = core.query_network(tiny_model(), "TOY")
    assert answers
    assert all(answer.supported for answer in answers.values())
    assert not [name for name in core.available_devices if name.startswith("TOY")]
    assert core.why_missing("TOY") == "the slot is empty; put a toy in"
    with pytest.raises(DeviceError, match="the slot is empty"):
        core.resolve_device("TOY")


def test_a_partition_is_planned_over_devices_that_are_not_there(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", PlanningPlugin)
    division = core.divide_network(tiny_model(), "HETERO:TOY,REFERENCE")
    assert division.explain().startswith("tiny on TOY, REFERENCE")
    assert [device for device, _ in division.subgraph_models()] == ["TOY"]
    with pytest.raises(DeviceError, match="the slot is empty"):
        core.load_network(tiny_model(), "HETERO:TOY,REFERENCE")
    with pytest.raises(DeviceError, match="the slot is empty"):
        core.load_network(tiny_model(), "HETERO:REFERENCE,TOY")


def test_auto_passes_over_a_device_that_only_answers_queries(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", PlanningPlugin)
    assert core.load_network(tiny_model(), "AUTO:TOY,REFERENCE").device == "REFERENCE.0"
    with pytest.raises(NotSupportedError, match="TOY is not there: the slot is empty"):
        core.load_network(tiny_model(), "AUTO:TOY")


def test_a_device_that_runs_a_model_whole_divides_none(core: aioinfer.Core) -> None:
    with pytest.raises(NotSupportedError, match=r"REFERENCE.1 runs a model whole.*'HETERO:CUDA"):
        core.divide_network(tiny_model(), "REFERENCE.1")


def test_a_name_is_taken_once(core: aioinfer.Core) -> None:
    core.register_plugin("TOY", ToyPlugin)
    for name in ("TOY", "REFERENCE"):
        with pytest.raises(DeviceError, match=f"a plugin '{name}' is already registered; unreg"):
            core.register_plugin(name, ToyPlugin)
    with pytest.raises(DeviceError, match=r"'MY.TOY' cannot be a plugin's name.*a dot starts"):
        core.register_plugin("MY.TOY", ToyPlugin)


def test_a_plugin_may_be_replaced(core: aioinfer.Core) -> None:
    first, second = Maker(), Maker()
    core.register_plugin("TOY", first)
    core.unregister_plugin("TOY")  # never made
    with pytest.raises(DeviceError, match="no plugin 'TOY' is registered"):
        core.unregister_plugin("TOY")
    with pytest.raises(DeviceError, match="unknown device 'TOY'"):
        core.get_metric("TOY", "FULL_DEVICE_NAME")
    core.register_plugin("TOY", second)
    assert core.get_metric("TOY", "FULL_DEVICE_NAME") == "mock device 0"
    assert (len(first.made), len(second.made)) == (0, 1)


def test_an_unknown_name_is_told_with_the_nearest_one(core: aioinfer.Core) -> None:
    with pytest.raises(DeviceError, match="no plugin 'REFERENC' is registered; did you mean 'REF"):
        core.unregister_plugin("REFERENC")
    with pytest.raises(DeviceError, match="unknown device 'referense'; did you mean 'REFERENCE'"):
        core.load_network(tiny_model(), "referense")
    with pytest.raises(DeviceError, match="unknown device 'XYZ'; registered are \\['AUTO'"):
        core.load_network(tiny_model(), "XYZ")


def test_networks_outlive_their_plugins_registration(core: aioinfer.Core) -> None:
    maker = Maker()
    core.register_plugin("TOY", maker)
    network = core.load_network(tiny_model(), "TOY")
    core.unregister_plugin("TOY")
    gc.collect()
    (plugin,) = maker.made
    assert plugin.close_count == 0  # its network may still need it
    outputs = network.create_infer_request().infer_sync(X)
    np.testing.assert_array_equal(outputs["y"], expected(X))
    core.close()
    core.close()
    assert plugin.close_count == 1


def test_plugins_close_with_the_core_and_only_those_that_were_made() -> None:
    used, unused = Maker(), Maker()
    with aioinfer.Core() as core:
        core.register_plugin("USED", used)
        core.register_plugin("UNUSED", unused)
        core.get_metric("USED", "FULL_DEVICE_NAME")
    assert [plugin.close_count for plugin in used.made] == [1]
    assert unused.made == []


def test_two_cores_have_plugins_of_their_own() -> None:
    with aioinfer.Core() as one, aioinfer.Core() as other:
        one.register_plugin("TOY", ToyPlugin)
        other.register_plugin("TOY", ToyPlugin)
        one.set_config("TOY", {"SPEED": 1})
        assert (one.get_config("TOY", "SPEED"), other.get_config("TOY", "SPEED")) == (1, 7)


@pytest.mark.parametrize(
    "lacking", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), DeviceError("no luck")]
)
def test_a_device_that_lacked_memory_or_files_is_tried_again(
    core: aioinfer.Core, lacking: Exception
) -> None:
    left = [lacking]

    def make(handle: CoreHandle, name: str) -> Plugin:
        if not left:
            return ToyPlugin(handle, name)
        raise left.pop() from MemoryError()

    core.register_plugin("TOY", make)
    with pytest.raises(DeviceError):
        core.load_network(tiny_model(), "TOY.1")
    core.load_network(tiny_model(), "TOY.1").close()
