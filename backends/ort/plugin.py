"""The ONNXRUNTIME plugin: any execution provider of the installed onnxruntime as a device."""

from __future__ import annotations

import dataclasses
import logging
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ...errors import NotSupportedError, PropertyError, UnsupportedOpError
from ...executors import StreamsConfig, allowed_cpus
from ...executors.late_imports import late_imports
from ...runtime.decompositions import find_decomposition
from ...runtime.devices.extension import NodeRule, tell_types
from ...runtime.devices.plugin import CoreHandle, Plugin
from ...runtime.graph import DType, Model, Node, TensorType
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import PassReport, default_passes, run_passes, symbol_bindings
from ...runtime.properties.properties import (
    INPUT_SHAPES,
    NUM_STREAMS,
    PLAN_CACHE_BYTES,
    PLAN_CACHE_COUNT,
    STANDARD_PROPERTIES,
    Configuration,
    Property,
    stream_count,
)
from ...runtime.type_inference import ShapeContent, find_rule
from ...runtime.type_inference.inference import has_rank
from .asked_types import AskedTypes
from .executable_network import OrtNetwork
from .node_support import NodeSupport, onnxruntime_text
from .properties import ORT_PROFILE_PREFIX, PROPERTIES, SessionSettings, settings_of
from .providers import Providers, sample_model
from .session import (
    CPU_PROVIDER,
    RECORD_ASSIGNMENT,
    Session,
    available_providers,
    library_version,
)

__all__ = ["OrtPlugin"]

_log = logging.getLogger("aioinfer.ONNXRUNTIME")

_CAPABILITIES = {
    "FP64": DType.FLOAT64,
    "FP32": DType.FLOAT32,
    "FP16": DType.FLOAT16,
    "BF16": DType.BFLOAT16,
    "INT8": DType.INT8,
}

_KNOWN_CLASSIFIERS = frozenset({"SVMClassifier", "TreeEnsembleClassifier"})
"""Operators with rules of their own, however they are composed; asking copies all their nodes."""


class OrtPlugin(Plugin):
    """Runs models on onnxruntime; the device id says on which of its execution providers.

    What a provider leaves is computed by onnxruntime's CPU provider, within the same session. One
    session serves all shapes and all streams of a network.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in STANDARD_PROPERTIES
        if declared not in (PLAN_CACHE_COUNT, PLAN_CACHE_BYTES)
    )
    properties: ClassVar[Sequence[Property[Any]]] = PROPERTIES
    # Behind a Dequantize onnxruntime computes in integers; numbers it quantises again, by tensor.
    unfolded_ops: ClassVar[frozenset[str]] = frozenset({"DequantizeLinear", "QuantizeLinear"})

    def __init__(self, core: CoreHandle, name: str) -> None:
        super().__init__(core, name)
        self._version = library_version()
        self._providers = Providers(CPU_PROVIDER, available_providers(), _takes_nodes)
        self._support = NodeSupport(Session)
        self._types = AskedTypes(_output_types, SessionSettings(CPU_PROVIDER))

    def device_ids(self) -> list[str]:
        return list(self._providers.by_id)

    def full_device_name(self, device_id: str) -> str:
        provider = self._providers.by_id[device_id or self.device_ids()[0]]
        return f"onnxruntime {self._version} {provider} on {platform.machine()}"

    def capabilities(self) -> list[str]:
        found = [label for label, dtype in _CAPABILITIES.items() if self._computes(dtype)]
        return [*found, "DYNAMIC", "EXPORT_IMPORT"]

    def _computes(self, dtype: DType) -> bool:
        sample, settings = sample_model(dtype), SessionSettings(CPU_PROVIDER)
        reasons = [self._support.find_reason(sample, node, settings) for node in sample.graph.nodes]
        return not any(reasons)

    def stream_range(self) -> tuple[int, int]:
        return (1, max(2, allowed_cpus().count))

    def check_values(self, config: Configuration) -> None:
        if config["INFERENCE_PRECISION_HINT"] != "f32":
            raise PropertyError(
                f"{self.name} computes in the model's own types; leave INFERENCE_PRECISION_HINT at "
                f"'f32' (given: {config['INFERENCE_PRECISION_HINT']!r}), or convert the model",
                "INFERENCE_PRECISION_HINT",
                self.name,
                value=config["INFERENCE_PRECISION_HINT"],
            )
        if config["PERF_COUNT"]:
            raise PropertyError(
                f"{self.name} cannot tell node times run by run; leave PERF_COUNT off and set "
                f"{ORT_PROFILE_PREFIX.key} for onnxruntime's own profile, or measure on REFERENCE",
                "PERF_COUNT",
                self.name,
                value=config["PERF_COUNT"],
            )

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        with late_imports:
            from ...runtime.onnx_writer import lower_opsets

        transformed = self.bind_extensions(model.to_rewrite())
        report = run_passes(transformed, default_passes(self.unfolded_ops, decomposes=False))
        lower_opsets(transformed)
        return transformed, report

    def type_rule_of(self, node: Node, opsets: Mapping[str, int]) -> NodeRule | None:
        is_known = find_decomposition(node) is None or node.op_type in _KNOWN_CLASSIFIERS
        if not node.domain or (find_rule(node) is not None and is_known):
            return super().type_rule_of(node, opsets)
        opsets = {domain: opsets[domain] for domain in (node.domain,) if domain in opsets}
        return partial(_asked, self._types, opsets)

    def bind_extensions(self, model: Model) -> Model:
        tell_types(model, self.type_rule_of)
        return model

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        settings = self._settings_of(config, 1)
        asked = (
            (node.name, self._support.find_reason(model, node, settings))
            for node in model.graph.nodes
        )
        return {name: reason for name, reason in asked if reason is not None}

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        for shapes in config[INPUT_SHAPES]:
            symbol_bindings(model.inputs, shapes)  # nothing to compile, and wrong ones are refused
        threads = config["INFERENCE_NUM_THREADS"] or allowed_cpus().count
        streams = stream_count(config, min(threads, self.stream_range()[1]))
        # The streams call one session and share its pool of threads.
        settings = self._settings_of(config, max(1, threads - streams + 1))
        session = self._make_session(model, settings, config)
        name = f"{self.name}.{config['DEVICE_ID']}"
        config = config.with_defaults({NUM_STREAMS: streams})
        return OrtNetwork(model, session, StreamsConfig(name, streams), config, self.core)

    def _make_session(
        self, model: Model, settings: SessionSettings, config: Configuration
    ) -> Session:
        try:
            return Session(model, settings)
        except Exception as error:
            refused = error
        # onnxruntime's rewrites can show its inference a contradiction in what would have run.
        plain = dataclasses.replace(settings, optimization_level="DISABLE_ALL")
        try:
            session = Session(model, plain)
        except Exception:
            raise self._explain(refused, model, config) from refused
        _log.warning(
            "model %r is loaded on %s with ORT_GRAPH_OPTIMIZATION_LEVEL=DISABLE_ALL, because "
            "onnxruntime cannot optimise it: %s",
            model.name,
            config.device,
            onnxruntime_text(refused),
        )
        return session

    def _settings_of(self, config: Configuration, thread_count: int) -> SessionSettings:
        provider = self._providers.by_id[config["DEVICE_ID"]]
        return settings_of(config, provider, thread_count)

    def _explain(self, error: Exception, model: Model, config: Configuration) -> Exception:
        for node, reason in self.find_unsupported(model, config).items():
            return UnsupportedOpError(node, model.node(node).op, config.device, reason)
        return NotSupportedError(
            f"{config.device} cannot load model {model.name!r}: {onnxruntime_text(error)}; load it "
            f"on another device such as REFERENCE"
        )


def _output_types(
    model: Model, settings: SessionSettings
) -> Sequence[tuple[str, Sequence[object]]]:
    session = Session(model, settings)
    try:
        return session.output_types()
    finally:
        session.close()


def _asked(types: AskedTypes, opsets: Mapping[str, int], node: Node) -> Sequence[TensorType | None]:
    rule = find_rule(node)
    if rule is not None and all(has_rank(value.type) for value in node.inputs if value is not None):
        known = rule(node, ShapeContent())
        if known and None not in known:
            return known
    return types.types_of(node, opsets)


def _takes_nodes(provider: str) -> bool:
    settings = SessionSettings(provider, config_entries=(RECORD_ASSIGNMENT,))
    try:
        return provider in Session(sample_model(), settings).providers_used()
    except Exception:  # whatever keeps it from starting; onnxruntime has a class for each
        return False
