"""onnx's own backend suite as a list of named cases, each run on a device of ours.

Feeds only what is no initializer, compares as onnx does (rtol 1e-3, atol 1e-7, the same dtype), and
writes its generated "light" zoo models to a temporary ONNX_HOME.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import aioinfer

CATEGORIES = (
    "OnnxBackendNodeModelTest",
    "OnnxBackendRealModelTest",
    "OnnxBackendSimpleModelTest",
    "OnnxBackendPyTorchConvertedModelTest",
    "OnnxBackendPyTorchOperatorModelTest",
)
PASSING = Path(__file__).parent / "passing"

Load = Callable[[aioinfer.Core, onnx.ModelProto], aioinfer.ExecutableNetwork]


def backend_cases(load: Load, core: aioinfer.Core) -> dict[str, Callable[[], None]]:
    """Name every case and give a function that runs it and raises where it fails."""
    os.environ.setdefault("ONNX_HOME", tempfile.mkdtemp(prefix="onnx-"))
    import onnx.backend.test
    from onnx.backend.base import Backend, BackendRep, Device, DeviceType

    class Rep(BackendRep):
        def __init__(self, network: aioinfer.ExecutableNetwork) -> None:
            self.network = network

        def run(self, inputs: Sequence[Any], **_options: Any) -> list[Any]:
            given = {
                port.name: as_input(value)
                for port, value in zip(self.network.inputs, inputs, strict=False)
            }
            with self.network:
                results = self.network.create_infer_request().infer_sync(given)
            return [results[port.name] for port in self.network.outputs]

    class OurBackend(Backend):
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_options: Any) -> Rep:
            return Rep(load(core, model))

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return Device(device).type == DeviceType.CPU

    classes = onnx.backend.test.BackendTest(OurBackend, __name__).test_cases
    cases: dict[str, Callable[[], None]] = {}
    for category in CATEGORIES:
        made = classes[category]
        for method in sorted(vars(made)):
            if method.startswith("test_") and method.endswith("_cpu"):
                cases[method.removesuffix("_cpu")] = functools.partial(_run, made, method)
    return cases


def _run(made: type, method: str) -> None:
    with np.errstate(all="ignore"):
        made(method).debug()


def as_input(value: Any) -> Any:
    """Make the suite's numpy scalars arrays; lists are sequences and None is an empty optional."""
    if value is None or isinstance(value, list):
        return value
    return np.asarray(value)


def passing_names(device: str) -> list[str]:
    """Read the checked-in list of the cases that pass on a device; it may only grow."""
    file = PASSING / f"{device.replace(':', '-').replace(',', '+')}.txt"
    return file.read_text(encoding="utf-8").split() if file.exists() else []
