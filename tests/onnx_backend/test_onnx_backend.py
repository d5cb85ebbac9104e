"""onnx's backend suite on one device: what is no known deviation passes, and those may only shrink.

``make conformance DEVICE=...`` says which device; one that is not there is a skip with its reason.
A known deviation that passes fails here, too, so that ``deviations/`` tells the truth.
"""

import functools
import os
from collections.abc import Callable, Iterator

import onnx
import pytest

import aioinfer
from onnx_backend.cases import backend_cases, case_names, deviations, passing_names
from presence import skip_if_missing
from quick_builds import build_quickly

DEVICE = os.environ.get("AIOINFER_CONFORMANCE_DEVICE", "REFERENCE")


_CONVOLUTIONS = 5
"""A model with this many runs longer than it takes to optimise its kernels."""


def _load(core: aioinfer.Core, proto: onnx.ModelProto) -> aioinfer.ExecutableNetwork:
    if sum(node.op_type == "Conv" for node in proto.graph.node) >= _CONVOLUTIONS:
        core = _core(True)
    asked = core.query_network(proto, DEVICE)
    refused = {name: answer.reason for name, answer in asked.items() if not answer.supported}
    if refused:
        with pytest.raises(aioinfer.errors.AioInferError) as raised:
            core.load_network(proto, DEVICE).close()
        raise raised.value
    try:
        return core.load_network(proto, DEVICE)
    except aioinfer.errors.UnsupportedOpError as error:
        raise AssertionError(f"a query said that {DEVICE} takes it: {error}") from error


@functools.cache
def _cases() -> dict[str, Callable[[], None]]:
    return backend_cases(_load, _core(False))


@functools.cache
def _core(is_optimised: bool) -> aioinfer.Core:
    core = aioinfer.Core()
    if "OPENCL" in DEVICE:
        build_quickly(core, is_optimised=is_optimised)
    return core


@pytest.fixture(scope="module", autouse=True)
def _closed_core() -> Iterator[None]:
    """Close what the module's tests share; where others come between, they make it anew."""
    yield
    for is_optimised in (False, True):
        _core(is_optimised).close()
    for shared in (_core, _cases):
        shared.cache_clear()


@pytest.fixture(scope="module")
def _device() -> None:
    skip_if_missing(_core(False), DEVICE)


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("name", passing_names(DEVICE))
def test_a_case_passes(name: str) -> None:
    _cases()[name]()


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize(
    "name", [name for name in case_names() if name not in set(passing_names(DEVICE))]
)
def test_a_deviation_is_still_one_and_for_its_reason(name: str) -> None:
    refused, _ = deviations(DEVICE)
    if name in refused:
        with pytest.raises(aioinfer.errors.UnsupportedOpError, match=refused[name]):
            _cases()[name]()
        return
    try:
        _cases()[name]()
    except (AssertionError, TypeError, aioinfer.errors.AioInferError):
        return
    pytest.fail(f"{name} passes on {DEVICE}: remove it from its deviations")


@pytest.mark.parametrize(
    ("device", "count"),
    [
        ("REFERENCE", 1811),
        ("CPU", 1579),
        ("ONNXRUNTIME", 1730),
        ("OPENCL", 1130),
        ("CUDA", 1130),
        ("HETERO:REFERENCE,ONNXRUNTIME", 1811),
        ("HETERO:ONNXRUNTIME,REFERENCE", 1780),
        ("HETERO:CPU,REFERENCE", 1811),
        ("HETERO:OPENCL,REFERENCE", 1811),
        ("HETERO:CUDA,REFERENCE", 1811),
    ],
)
def test_a_device_passes_as_many_cases_as_it_ever_did(device: str, count: int) -> None:
    assert len(passing_names(device)) >= count
