"""Without a GPU: queries and partitions are answered, loading says what is missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.kernels.registry import KERNELS as SHARED
from aioinfer.backends.cuda import cupy_driver
from aioinfer.backends.cuda.kernels.registry import KERNELS
from aioinfer.backends.cuda.plugin import CudaPlugin
from aioinfer.cli.devices import find_devices
from aioinfer.errors import DeviceError, NotSupportedError
from architecture.tree import ROOT, pyproject
from unit.backends.accelerator.fake_driver import FakeDriver
from unit.backends.comparing import model_of, operator
from unit.backends.cuda.planning import GPU, MISSING, cuda_core

_COMMON_FACTS = {
    "AVAILABLE_DEVICES",
    "RANGE_FOR_ASYNC_INFER_REQUESTS",
    "RANGE_FOR_STREAMS",
    "SUPPORTED_CONFIG_KEYS",
    "SUPPORTED_METRICS",
    "SUPPORTED_PROPERTIES",
}
X = {"x": np.zeros((2, 8), np.float32)}
NODES = [
    operator("Relu", "x", outputs=["a"]),
    operator("NonZero", "a", outputs=["b"]),
    operator("Exp", "a", outputs=["c"]),
]


@pytest.fixture
def core() -> Iterator[Core]:
    with cuda_core() as made:
        yield made


def mixed() -> Any:
    """Make a model of which CUDA takes the first and the last node."""
    return model_of(NODES, X, ("b", "c"))


def test_a_missing_gpu_is_not_listed_and_says_why(core: Core) -> None:
    assert not [name for name in core.available_devices if name.startswith("CUDA")]
    assert core.why_missing("CUDA") == f"CUDA has no device: {MISSING}"
    (row,) = [row for row in find_devices(core) if row.device.startswith("CUDA")]
    assert (row.status, row.reason) == ("cannot start", f"CUDA has no device: {MISSING}")
    with pytest.raises(DeviceError, match=MISSING):
        core.get_metric("CUDA", "FULL_DEVICE_NAME")


def test_without_cupy_the_device_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cupy_driver, "refuse_without_driver", lambda: None)
    with Core() as core:
        core.register_plugin("GPU", CudaPlugin)
        assert core.query_network(mixed(), "GPU")["Relu"].supported
        with pytest.raises(DeviceError, match=r"CuPy cannot be .*pip install 'aioinfer\[cuda\]'"):
            core.load_network(mixed(), "GPU")


@pytest.mark.parametrize("device", ["CUDA", "CUDA.1", "HETERO:CUDA,REFERENCE"])
def test_loading_without_a_gpu_says_what_to_do(device: str, core: Core) -> None:
    with pytest.raises(DeviceError, match=f"CUDA has no device: {MISSING}"):
        core.load_network(model_of([operator("Relu", "x")], X), device)


def test_auto_goes_on_without_a_gpu(core: Core) -> None:
    with core.load_network(model_of([operator("Relu", "x")], X), "AUTO:CUDA,REFERENCE") as network:
        assert network.device == "REFERENCE.0"
    with pytest.raises(NotSupportedError, match=f"CUDA is not there: .*{MISSING}"):
        core.load_network(model_of([operator("Relu", "x")], X), "AUTO:CUDA")


def test_queries_are_answered_alike_with_and_without_a_gpu(core: Core) -> None:
    with cuda_core(FakeDriver(GPU)) as other:
        answers = core.query_network(mixed(), "CUDA")
        assert answers == other.query_network(mixed(), "CUDA")
    assert {name: answer.supported for name, answer in answers.items()} == {
        "Relu": True,
        "NonZero": False,
        "Exp": True,
    }
    assert answers["NonZero"].reason == "CUDA has no kernel for NonZero"


def test_what_every_accelerator_has_cuda_has(core: Core) -> None:
    assert SHARED.kernels.keys() <= KERNELS.kernels.keys()


@pytest.mark.parametrize("gpus", ["CUDA", "CUDA.0,CUDA.1"])
def test_a_partition_is_the_same_with_and_without_a_gpu(gpus: str, core: Core) -> None:
    device = f"HETERO:{gpus},REFERENCE"
    planned = core.divide_network(mixed(), device)
    with cuda_core(FakeDriver(GPU, GPU)) as other:
        assert planned.partition == other.divide_network(mixed(), device).partition
    first = gpus.partition(",")[0]
    assert [piece.device for piece in planned.partition.subgraphs] == [first, "REFERENCE"]
    assert "NonZero" in planned.explain()


@pytest.mark.parametrize("hint", ["f32", "tf32", "f16", "bf16"])
def test_a_plan_may_ask_for_what_the_gpu_will_have(hint: str, core: Core) -> None:
    config = {"INFERENCE_PRECISION_HINT": hint, "CUDA_GRAPHS": True, "DEVICE_ID": "3"}
    assert core.query_network(mixed(), "CUDA", config)["Relu"].supported


def test_an_id_that_is_no_number_is_refused_everywhere(core: Core) -> None:
    with pytest.raises(DeviceError, match="CUDA has no device 'fast'"):
        core.query_network(mixed(), "CUDA.fast")


def test_what_the_readme_says_of_cuda_leads_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in readme.splitlines() if line.startswith("| `CUDA`")]
    page = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert "docs/cuda.md#what-ran-on-a-device" in row
    assert "\n## What ran on a device\n" in page
    extras = pyproject()["project"]["optional-dependencies"]
    named = re.findall(r"pip install '\.\[([\w-]+)\]'", row + page)
    assert set(named) == {"cuda", "cuda-compiler"} <= extras.keys()


def test_the_page_names_every_file_property_and_metric(core: Core) -> None:
    page = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "backends" / "cuda").glob("*.py")} - {"__init__.py"}
    assert sorted(name for name in files if f"`{name}`" not in page) == []
    own = {item.key for item in CudaPlugin.properties}
    facts = set(core.get_metric("CUDA", "SUPPORTED_METRICS")) - _COMMON_FACTS
    assert sorted(name for name in own | facts if f"`{name}`" not in page) == []
