"""onnx's backend suite on one device: every name on the device's list passes, and it may only grow.

``make conformance DEVICE=...`` says which device; one that is not there is a skip with its reason.
A case that passes and is not on the list fails here, too, so that the list tells the truth; add its
name.
"""

import functools
import os
from collections.abc import Callable, Iterator

import onnx
import pytest

import aioinfer
from onnx_backend.cases import backend_cases, passing_names
from presence import skip_if_missing

DEVICE = os.environ.get("AIOINFER_CONFORMANCE_DEVICE", "REFERENCE")
RANDOM = "test_bernoulli"  # draws random numbers, which no device can reproduce


def _load(core: aioinfer.Core, proto: onnx.ModelProto) -> aioinfer.ExecutableNetwork:
    return core.load_network(proto, DEVICE)


@functools.cache
def _cases() -> dict[str, Callable[[], None]]:
    return backend_cases(_load, _core())


@functools.cache
def _core() -> aioinfer.Core:
    return aioinfer.Core()


@pytest.fixture(scope="module", autouse=True)
def _closed_core() -> Iterator[None]:
    yield
    _core().close()


@pytest.fixture(scope="module")
def _device() -> None:
    skip_if_missing(_core(), DEVICE)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("name", [name for name in _cases() if not name.startswith(RANDOM)])
def test_case_passes_exactly_if_it_is_on_the_list(name: str) -> None:
    if name in passing_names(DEVICE):
        _cases()[name]()
        return
    try:
        _cases()[name]()
    except (AssertionError, TypeError, aioinfer.errors.AioInferError):
        return
    pytest.fail(f"{name} passes on {DEVICE}: add it to the list of passing names")


def test_the_list_names_only_cases_that_exist() -> None:
    assert set(passing_names(DEVICE)) <= _cases().keys()


@pytest.mark.parametrize(
    ("device", "count"),
    [
        ("REFERENCE", 1813),
        ("CPU", 1211),
        ("ONNXRUNTIME", 1727),
        ("OPENCL", 1130),
        ("CUDA", 1130),
        ("HETERO:REFERENCE,ONNXRUNTIME", 1813),
        ("HETERO:ONNXRUNTIME,REFERENCE", 1780),
        ("HETERO:CPU,REFERENCE", 1813),
        ("HETERO:OPENCL,REFERENCE", 1813),
        ("HETERO:CUDA,REFERENCE", 1813),
    ],
)
def test_a_device_passes_as_many_cases_as_it_ever_did(device: str, count: int) -> None:
    assert len(passing_names(device)) >= count
