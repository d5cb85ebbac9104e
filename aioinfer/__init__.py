"""aioinfer: asyncio inference for ONNX models, on one device or split over several.

core = aioinfer.Core()
network = core.load_network("model.onnx", "HETERO:REFERENCE.0,REFERENCE.1")
outputs = await network.infer({"image": image})
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from .executors.late_imports import late_imports as _late_imports
from .runtime.devices.core import Core, ModelSource
from .runtime.devices.extension import Extension, InferTypes
from .runtime.devices.plugin import Division, Plugin
from .runtime.graph import (
    Attribute,
    Dim,
    DType,
    Graph,
    MapType,
    Model,
    Node,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Value,
    ValueType,
)
from .runtime.network.executable_network import ExecutableNetwork
from .runtime.network.infer_request import Callback, InferRequest
from .runtime.network.result_stream import Source
from .runtime.network.states.variable_state import VariableState
from .runtime.passes import Support, SupportMap
from .runtime.runs.bindings import NodeProfile, Results, RunProfile
from .runtime.tensors.tensor import Port, Tensor
from .runtime.tracing.copied_bytes import CopiedBytes
from .runtime.tracing.durations import Durations
from .runtime.tracing.recorder import NodeSpan, Span

if TYPE_CHECKING:
    from . import images as images
    from . import plugins, preprocess, testing
    from . import prometheus as prometheus
    from .runtime.network.async_infer_queue import AsyncInferQueue, QueueCallback
    from .runtime.network.user_functions import Postprocess, Preprocess
    from .runtime.preprocessing.pre_post_processor import PrePostProcessor
    from .runtime.tracing.statistics import (
        CoreStatistics,
        DeviceStatistics,
        NetworkStatistics,
        PlanStatistics,
        StageStatistics,
    )
    from .runtime.tracing.timeline import Trace
    from .runtime.tracing.timeline.critical_path import PathPart
    from .runtime.tracing.timeline.runs import TracedRun
    from .runtime.tracing.timeline.span_sequence import SpanSequence

__version__ = "0.1.0"

__all__ = [
    "AsyncInferQueue",
    "Attribute",
    "Callback",
    "CopiedBytes",
    "Core",
    "CoreStatistics",
    "DType",
    "DeviceStatistics",
    "Dim",
    "Division",
    "Durations",
    "ExecutableNetwork",
    "Extension",
    "Graph",
    "InferRequest",
    "InferTypes",
    "MapType",
    "Model",
    "ModelSource",
    "NetworkStatistics",
    "Node",
    "NodeProfile",
    "NodeSpan",
    "OptionalType",
    "PathPart",
    "PlanStatistics",
    "Plugin",
    "Port",
    "Postprocess",
    "PrePostProcessor",
    "Preprocess",
    "QueueCallback",
    "Results",
    "RunProfile",
    "SequenceType",
    "Shape",
    "Source",
    "Span",
    "SpanSequence",
    "StageStatistics",
    "Support",
    "SupportMap",
    "Tensor",
    "TensorType",
    "Trace",
    "TracedRun",
    "Value",
    "ValueType",
    "VariableState",
    "__version__",
    "errors",
    "plugins",
    "preprocess",
    "testing",
]


_LAZY_MODULES = ("images", "plugins", "preprocess", "prometheus", "testing")
_FUNCTIONS = ".runtime.network.user_functions"
_STATISTICS = ".runtime.tracing.statistics"
_LAZY = {
    "AsyncInferQueue": ".runtime.network.async_infer_queue",
    "CoreStatistics": _STATISTICS,
    "DeviceStatistics": _STATISTICS,
    "NetworkStatistics": _STATISTICS,
    "PathPart": ".runtime.tracing.timeline.critical_path",
    "PlanStatistics": _STATISTICS,
    "Postprocess": _FUNCTIONS,
    "PrePostProcessor": ".runtime.preprocessing.pre_post_processor",
    "Preprocess": _FUNCTIONS,
    "QueueCallback": ".runtime.network.async_infer_queue",
    "SpanSequence": ".runtime.tracing.timeline.span_sequence",
    "StageStatistics": _STATISTICS,
    "Trace": ".runtime.tracing.timeline",
    "TracedRun": ".runtime.tracing.timeline.runs",
}


def __getattr__(name: str) -> Any:
    """Load what most programs never use when one does."""
    place = f".{name}" if name in _LAZY_MODULES else _LAZY.get(name)
    if place is not None:
        with _late_imports:
            module = importlib.import_module(place, __name__)
        return module if name in _LAZY_MODULES else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
