"""onnx's own backend suite as a list of named cases, each run on a device of ours.

Feeds only what is no initializer, compares as onnx does (rtol 1e-3, atol 1e-7, the same dtype), and
writes its generated "light" zoo models to a temporary ONNX_HOME.

``deviations/`` says, for each device, what it does otherwise: patterns of names by the reason.
Under ``refuses`` the reason is searched for in the error that loading raises; under
``answers_otherwise`` it is for the reader. Every case that no pattern matches has to pass.
"""

import fnmatch
import functools
import os
import tempfile
import tomllib
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
DEVIATIONS = Path(__file__).parent / "deviations"
FILES = {"OPENCL": "accelerators", "CUDA": "accelerators"}
RANDOM = "test_bernoulli"
"""These draw random numbers, which no device can reproduce."""


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


class Suite:
    """The cases by one way to load, made with the Core that they share when the first one runs."""

    def __init__(self, load: Load) -> None:
        self._load = load

    @functools.cached_property
    def core(self) -> aioinfer.Core:
        return aioinfer.Core()

    @functools.cached_property
    def _cases(self) -> dict[str, Callable[[], None]]:
        return backend_cases(self._load, self.core)

    def run(self, name: str) -> None:
        self._cases[name]()


def _run(made: type, method: str) -> None:
    with np.errstate(all="ignore"):
        made(method).debug()


def as_input(value: Any) -> Any:
    """Make the suite's numpy scalars arrays; lists are sequences and None is an empty optional."""
    if value is None or isinstance(value, list):
        return value
    return np.asarray(value)


@functools.cache
def case_names() -> tuple[str, ...]:
    """List the cases that have one right answer."""

    def load(core: aioinfer.Core, model: onnx.ModelProto) -> aioinfer.ExecutableNetwork:
        raise NotImplementedError("only the names are asked for")

    with aioinfer.Core() as core:
        return tuple(name for name in backend_cases(load, core) if not name.startswith(RANDOM))


def deviations(device: str) -> tuple[dict[str, str], dict[str, str]]:
    """Say which cases a device refuses and which it answers otherwise, each with the reason.

    HETERO gives a case to the first of its devices that takes it.
    """
    kind, _, devices = device.partition(":")
    if kind != "HETERO":
        return _deviations_of_one(kind)
    refused, otherwise = dict.fromkeys(case_names(), ""), dict[str, str]()
    for one in devices.split(","):
        refuses, answers = _deviations_of_one(one)
        otherwise |= {name: why for name, why in answers.items() if name in refused}
        refused = {name: refuses[name] for name in refused if name in refuses}
    return refused, otherwise


@functools.cache
def _deviations_of_one(device: str) -> tuple[dict[str, str], dict[str, str]]:
    kind = device.partition(".")[0]
    path = DEVIATIONS / f"{FILES.get(kind, kind)}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return _by_name(table.get("refuses", {})), _by_name(table.get("answers_otherwise", {}))


def _by_name(patterns: dict[str, list[str]]) -> dict[str, str]:
    """Spread patterns over the cases that they match; each has to match some that no other does."""
    reasons: dict[str, str] = {}
    for reason, group in patterns.items():
        for pattern in group:
            matched = set(fnmatch.filter(case_names(), pattern))
            if not matched - reasons.keys():
                raise ValueError(f"{pattern} ({reason}) matches no case of its own: remove it")
            reasons |= dict.fromkeys(matched, reason)
    return reasons


def passing_names(device: str) -> list[str]:
    """List the cases that have to pass on a device."""
    refused, otherwise = deviations(device)
    return [name for name in case_names() if name not in refused and name not in otherwise]
