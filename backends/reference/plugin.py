"""The REFERENCE plugin: correct answers for practically all of ONNX, on any machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from ...errors import DeviceError, PropertyError, UnsupportedOpError
from ...executors import allowed_cpus
from ...runtime.devices.extension import tell_types
from ...runtime.devices.plugin import CoreHandle, Plugin
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import PassReport, run_passes
from ...runtime.properties.properties import (
    NUM_STREAMS,
    NUMA,
    PLAN_CACHE_BYTES,
    STANDARD_PROPERTIES,
    Configuration,
    Property,
    stream_count,
)
from .executable_network import ReferenceNetwork, passes_with
from .finder import KernelFinder

__all__ = ["ReferencePlugin"]

DEVICE_COUNT_VARIABLE = "AIOINFER_REFERENCE_DEVICES"
"""The environment variable that says how many independent devices there are; 2 by default."""


class ReferencePlugin(Plugin):
    """Runs each operator on numpy, one node at a time. The oracle for every other device.

    Its devices are independent: each has streams of its own, so HETERO is real on any machine.
    """

    takes_extensions: ClassVar[bool] = True
    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared for declared in STANDARD_PROPERTIES if declared is not PLAN_CACHE_BYTES
    )

    def __init__(self, core: CoreHandle, name: str) -> None:
        super().__init__(core, name)
        self._device_count = _device_count(os.environ.get(DEVICE_COUNT_VARIABLE))

    def device_ids(self) -> list[str]:
        return [str(index) for index in range(self._device_count)]

    def full_device_name(self, device_id: str) -> str:
        return f"numpy reference {device_id or '0'} on {platform.machine()}"

    def capabilities(self) -> list[str]:
        types = ["FP64", "FP32", "FP16", "BF16", "INT8", "INT4", "STRING"]
        return [*types, "DYNAMIC", "EXPORT_IMPORT"]

    def stream_range(self) -> tuple[int, int]:
        return (1, max(2, allowed_cpus().count))

    def check_values(self, config: Configuration) -> None:
        if config["NUM_STREAMS"] in (0, NUMA):
            raise PropertyError(
                f"{self.name} has threads of its own and does not place them on NUMA nodes; set "
                f"NUM_STREAMS to AUTO, or to 1 or more (given: {config['NUM_STREAMS']})",
                "NUM_STREAMS",
                self.name,
                value=config["NUM_STREAMS"],
            )
        if config["INFERENCE_PRECISION_HINT"] != "f32":
            raise PropertyError(
                f"{self.name} computes in the model's own types; leave INFERENCE_PRECISION_HINT at "
                f"'f32' (given: {config['INFERENCE_PRECISION_HINT']!r})",
                "INFERENCE_PRECISION_HINT",
                self.name,
                value=config["INFERENCE_PRECISION_HINT"],
            )
        if config["INFERENCE_NUM_THREADS"]:
            raise PropertyError(
                f"{self.name} leaves threads inside an operator to numpy; set NUM_STREAMS, or the "
                f"variable of your BLAS (given: INFERENCE_NUM_THREADS="
                f"{config['INFERENCE_NUM_THREADS']})",
                "INFERENCE_NUM_THREADS",
                self.name,
                value=config["INFERENCE_NUM_THREADS"],
            )

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        copied = self.bind_extensions(model.to_rewrite())
        return copied, run_passes(copied, passes_with(self.extensions), check=False)

    def bind_extensions(self, model: Model) -> Model:
        tell_types(model, self.type_rule_of)
        return model

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return _unsupported(model, self._finder(model, config))

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        finder = self._finder(model, config)
        for node, reason in _unsupported(model, finder).items():
            raise UnsupportedOpError(node, model.node(node).op, config.device, reason)
        streams = stream_count(config, allowed_cpus().count)
        chosen = config.with_defaults({NUM_STREAMS: streams})
        return ReferenceNetwork(model, chosen, self.core, finder, self.extensions)

    def load_alike(
        self, model: Model, config: Configuration, known: ExecutableNetwork
    ) -> ExecutableNetwork | None:
        if self.extensions or not isinstance(known, ReferenceNetwork):
            return None
        own = model.to_rewrite()
        own.is_settled = True
        steps = known.steps_for(own)
        return ReferenceNetwork(own, known.config, self.core, known.finder, (), steps)

    def _finder(self, model: Model, config: Configuration) -> KernelFinder:
        kernels = {key: extension.kernel for key, extension in self._extensions.items()}
        return KernelFinder(model.opsets, kernels, config.device)


def _unsupported(model: Model, finder: KernelFinder) -> dict[str, str]:
    reasons = ((node.name, finder.find_unsupported(node)) for node in model.graph.nodes)
    return {name: reason for name, reason in reasons if reason is not None}


def _device_count(text: str | None) -> int:
    if text is None:
        return 2
    if not re.fullmatch(r"0*[1-9][0-9]{0,2}", text):
        raise DeviceError(f"{DEVICE_COUNT_VARIABLE}={text!r}: a number from 1 to 999 is wanted")
    return int(text)
