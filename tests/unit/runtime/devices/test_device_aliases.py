"""Other libraries' names for devices: understood, or answered with ours."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.runtime.devices.device_aliases import understood

KNOWN = ["AUTO", "CPU", "CUDA", "HETERO", "ONNXRUNTIME", "OPENCL", "REFERENCE", "toy", "TOY"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("CPU", "CPU"),
        ("cpu", "CPU"),
        ("Cpu", "CPU"),
        (" cpu ", "CPU"),
        ("cpu:0", "CPU.0"),
        ("cuda", "CUDA"),
        ("cuda:0", "CUDA.0"),
        ("CUDA:1", "CUDA.1"),
        ("cuda.1", "CUDA.1"),
        ("CUDAExecutionProvider", "CUDA"),
        ("CPUExecutionProvider", "CPU"),
        ("ort", "ONNXRUNTIME"),
        ("onnxruntime", "ONNXRUNTIME"),
        ("hetero:cuda,cpu", "HETERO:CUDA,CPU"),
        ("HETERO:cuda:0, cpu", "HETERO:CUDA.0,CPU"),
        ("Hetero:cuda.1(2),CPU (3)", "HETERO:CUDA.1(2),CPU (3)"),
        ("hetero:cuda:0(2), cpu:1", "HETERO:CUDA.0(2),CPU.1"),
        ("auto:-cuda, - cuda:1", "AUTO:-CUDA,-CUDA.1"),
        ("auto:hetero:Cuda,cpu(8)", "AUTO:HETERO:CUDA,CPU(8)"),
        ("toy", "toy"),
        ("TOY", "TOY"),
        ("Toy", "Toy"),  # two are of that name
        ("GPU", "GPU"),
        ("", ""),
        (":", ":"),
    ],
)
def test_a_name_is_understood_where_it_is_clear(given: str, meant: str) -> None:
    assert understood(given, KNOWN) == meant


def test_a_name_of_a_device_that_is_not_registered_stays() -> None:
    assert understood("CUDAExecutionProvider", ["CPU"]) == "CUDAExecutionProvider"


@pytest.mark.parametrize("device", ["reference", "Reference.0", "reference:0", "REFERENCE:0"])
def test_a_network_is_loaded_by_any_spelling(core: aioinfer.Core, device: str) -> None:
    assert core.get_metric(device, "FULL_DEVICE_NAME")
    assert core.resolve_device(device).partition(".")[0] == "REFERENCE"
    core.set_config(device, {"NUM_STREAMS": 2})
    assert core.get_config("REFERENCE", "NUM_STREAMS") == 2


@pytest.mark.parametrize(
    ("device", "answer"),
    [
        ("GPU", r"unknown device 'GPU': a GPU is CUDA \(NVIDIA's\) or OPENCL"),
        ("gpu.0", "unknown device 'gpu': a GPU is CUDA"),
        ("GPU:0", "unknown device 'GPU': a GPU is CUDA"),
        ("TensorrtExecutionProvider", "NVIDIA's GPUs are CUDA"),
        ("mps", "OPENCL drives GPUs of other makers"),
        ("NPU", "nothing of aioinfer drives that"),
        ("CPPU", "did you mean 'CPU'"),
        ("quantum", "registered are"),
    ],
)
def test_what_is_not_clear_is_answered_with_our_names(
    core: aioinfer.Core, device: str, answer: str
) -> None:
    with pytest.raises(DeviceError, match=answer):
        core.get_metric(device, "FULL_DEVICE_NAME")
