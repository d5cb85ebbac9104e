from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import DeviceFacts
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.backends.opencl import pyopencl_driver
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import DeviceError, PropertyError
from opencl_device import choose_device
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver

X = {"x": np.zeros(4, np.float32)}


def fake_core(*facts: DeviceFacts) -> Core:
    core = Core()
    driver = FakeDriver(*facts)
    driver.functions["fused"] = lambda x, y, count: None
    core.register_plugin("FAKE", lambda handle, name: OpenClPlugin(handle, name, driver))
    return core


TWO = (replace(FACTS, platform="One"), replace(FACTS, platform="Other", name="second"))


def test_devices_are_numbered_over_all_platforms() -> None:
    with fake_core(*TWO) as core:
        assert [name for name in core.available_devices if "FAKE" in name] == ["FAKE.0", "FAKE.1"]
        assert core.get_metric("FAKE.1", "FULL_DEVICE_NAME") == "second (Other)"
        assert core.get_metric("FAKE.1", "OPENCL_PLATFORM_NAME") == "Other"
        version = core.get_metric("FAKE.1", "OPENCL_PLATFORM_VERSION")
        assert version == FACTS.platform_version
        assert core.get_metric("FAKE", "DEVICE_TOTAL_MEM_SIZE") == FACTS.memory_bytes
        assert core.get_metric("FAKE", "DRIVER_VERSION") == "1.0"


@pytest.mark.parametrize("kind", ["cpu", "integrated", "discrete"])
def test_a_device_says_what_kind_of_hardware_it_is(
    kind: Literal["cpu", "integrated", "discrete"],
) -> None:
    with fake_core(replace(FACTS, kind=kind)) as core:
        assert core.get_metric("FAKE", "DEVICE_TYPE") == kind


def test_a_part_of_its_name_chooses_the_platform() -> None:
    with fake_core(*TWO) as core:
        config = {"OPENCL_PLATFORM": "other"}
        with core.load_network(model_of([operator("Neg", "x")], X), "FAKE", config) as network:
            assert network.device == "FAKE.1"
        core.set_config("FAKE", config)
        assert [name for name in core.available_devices if "FAKE" in name] == ["FAKE"]
        with core.load_network(model_of([operator("Neg", "x")], X), "FAKE") as network:
            assert network.device == "FAKE.1"


def test_a_part_of_its_version_chooses_between_platforms_of_one_name() -> None:
    model = model_of([operator("Neg", "x")], X)
    versions = ("OpenCL 3.0 PoCL 3.1+debian", "OpenCL 3.0 PoCL 3.0-rc2")
    namesakes = [replace(FACTS, platform="PoCL's", platform_version=text) for text in versions]
    with fake_core(*namesakes) as core:
        for platform, expected in (("pocl 3.0-RC", "FAKE.1"), ("3.1", "FAKE.0"), ("s", "FAKE.0")):
            config = {"OPENCL_PLATFORM": platform}
            with core.load_network(model, "FAKE", config) as network:
                assert network.device == expected
        words = rf"FAKE\.0 is on platform \"PoCL's\" \({re.escape(versions[0])}\), not on 'rc2'"
        with pytest.raises(PropertyError, match=words):
            core.load_network(model, "FAKE.0", {"OPENCL_PLATFORM": "rc2"})
        words = ", ".join(re.escape(f'"PoCL\'s" ({version})') for version in sorted(versions))
        with pytest.raises(PropertyError, match=words):
            core.load_network(model, "FAKE", {"OPENCL_PLATFORM": "rc3"})


def test_a_name_and_a_version_are_not_one_text() -> None:
    facts = replace(FACTS, platform="One", platform_version="Two")
    assert (facts.is_on("one"), facts.is_on("tw"), facts.is_on("eT")) == (True, True, False)


def test_a_platform_that_is_not_there_is_refused() -> None:
    with (
        fake_core(*TWO) as core,
        pytest.raises(PropertyError, match=r"there are 'One' \(.*\), 'Other' \(.*\)"),
    ):
        core.load_network(model_of([operator("Neg", "x")], X), "FAKE", {"OPENCL_PLATFORM": "Mine"})


@pytest.mark.parametrize("wanted", ["", "OPENCL.1", "OPENCL.0", "OPENCL"])
def test_the_tests_device_can_be_chosen(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOINFER_OPENCL_DEVICE", wanted)
    with fake_core(*TWO) as core:
        choose_device(core, "FAKE")
        expected = wanted.replace("OPENCL", "FAKE") if "." in wanted else "FAKE.0"
        with core.load_network(model_of([operator("Neg", "x")], X), "FAKE") as network:
            assert network.device == expected


def test_a_device_for_tests_that_is_not_there_fails_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOINFER_OPENCL_DEVICE", "OPENCL.7")
    with fake_core() as core, pytest.raises(DeviceError, match="no device '7'"):
        choose_device(core, "FAKE")


def test_a_device_of_another_platform_is_refused() -> None:
    with fake_core(*TWO) as core, pytest.raises(PropertyError, match=r"whose devices are FAKE\.1"):
        core.load_network(
            model_of([operator("Neg", "x")], X), "FAKE.0", {"OPENCL_PLATFORM": "Other"}
        )


def given_to(device: str, platform: str) -> dict[str, Any]:
    return {"DEVICE_PROPERTIES": {device: {"OPENCL_PLATFORM": platform}}}


def test_a_device_made_of_devices_passes_the_platform_on() -> None:
    model = model_of([operator("Neg", "x")], X)
    with fake_core(*TWO) as core:
        for platform, expected in (("one", "FAKE.0"), ("other", "FAKE.1")):
            config = given_to("FAKE", platform)
            alone = {**config, "ENABLE_STARTUP_FALLBACK": False}
            with core.load_network(model, "AUTO:FAKE,REFERENCE", alone) as network:
                assert network.execution_devices == (expected,)
            with core.load_network(model, "HETERO:FAKE,REFERENCE", config) as network:
                assert isinstance(network, HeteroNetwork)
                assert [part.device for part in network.networks] == [expected]


@pytest.mark.parametrize("kind", ["AUTO", "HETERO"])
@pytest.mark.parametrize(
    ("devices", "platform", "words"),
    [
        ("FAKE,REFERENCE", "Mine", "there are 'One'.*, 'Other'"),
        ("FAKE.0,REFERENCE", "Other", r"FAKE\.0 is on platform 'One'.*whose devices are FAKE\.1"),
    ],
)
def test_a_platform_that_a_part_cannot_have_is_refused(
    kind: str, devices: str, platform: str, words: str
) -> None:
    with fake_core(*TWO) as core, pytest.raises(PropertyError, match=words):
        core.load_network(
            model_of([operator("Neg", "x")], X), f"{kind}:{devices}", given_to("FAKE", platform)
        )


def test_a_platform_that_is_given_goes_before_one_that_is_set() -> None:
    model = model_of([operator("Neg", "x")], X)
    with fake_core(*TWO) as core:
        core.set_config("FAKE", {"OPENCL_PLATFORM": "Other"})
        with core.load_network(model, "FAKE", {"OPENCL_PLATFORM": "One"}) as network:
            assert network.device == "FAKE.0"
        with core.load_network(model, "HETERO:FAKE,REFERENCE", given_to("FAKE", "One")) as network:
            assert isinstance(network, HeteroNetwork)
            assert [part.device for part in network.networks] == ["FAKE.0"]
        with pytest.raises(PropertyError, match=r"is on platform 'One' \(.*\), not on 'Other'"):
            core.load_network(model, "FAKE.0")
        with pytest.raises(DeviceError, match=r"no device '7'; it has \['FAKE\.1'\]"):
            core.load_network(model, "FAKE.7")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NUM_STREAMS", 2),
        ("INFERENCE_NUM_THREADS", 3),
        ("INFERENCE_PRECISION_HINT", "f16"),
        ("INFERENCE_PRECISION_HINT", "tf32"),
    ],
)
def test_what_the_device_cannot_honour_is_refused(key: str, value: object) -> None:
    with fake_core() as core, pytest.raises(PropertyError, match=key):
        core.load_network(model_of([operator("Neg", "x")], X), "FAKE", {key: value})


def test_float16_is_a_capability_of_devices_that_compute_in_it() -> None:
    half = replace(FACTS, has_float16=True)
    with fake_core(half) as core:
        assert "FP16" in core.get_metric("FAKE", "OPTIMIZATION_CAPABILITIES")
        config = {"INFERENCE_PRECISION_HINT": "f16"}
        core.load_network(model_of([operator("Neg", "x")], X), "FAKE", config).close()
    with fake_core(FACTS, half) as core:
        for device, has_float16 in (("FAKE", False), ("FAKE.0", False), ("FAKE.1", True)):
            assert ("FP16" in core.get_metric(device, "OPTIMIZATION_CAPABILITIES")) == has_float16
        metrics = core.get_metric("FAKE", "SUPPORTED_METRICS")
        assert metrics.count("OPTIMIZATION_CAPABILITIES") == 1


def test_a_device_with_small_groups_says_what_to_do() -> None:
    with (
        fake_core(replace(FACTS, work_group_size=1)) as core,
        pytest.raises(DeviceError, match="use another platform"),
    ):
        core.load_network(model_of([operator("Neg", "x")], X), "FAKE")


def test_without_pyopencl_the_device_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(pyopencl_driver.importlib, "import_module", missing)
    with pytest.raises(DeviceError, match=r"pip install aioinfer\[opencl\]"):
        pyopencl_driver.PyOpenClDriver()


def test_a_query_says_what_there_is_no_kernel_for(core: Core) -> None:
    answers = core.query_network(model_of([operator("NonZero", "x")], X), "OPENCL")
    assert answers["NonZero"].reason == "OPENCL has no kernel for NonZero"
