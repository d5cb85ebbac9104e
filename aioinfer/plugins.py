"""What the author of a device needs beside ``Plugin``; docs/add-a-device.md shows it in use."""

from .runtime.blobs.network_record import NetworkRecord
from .runtime.blobs.reader import Blob, BlobSource
from .runtime.blobs.writer import BlobWriter
from .runtime.devices.extension import NodeRule, TypeRuleOf
from .runtime.devices.plugin import CoreHandle
from .runtime.devices.plugin_registry import MakePlugin
from .runtime.graph import copy_graph
from .runtime.network.compiled_network import ExecutorOwner
from .runtime.network.export import ExportTarget
from .runtime.network.running_network import RunningNetwork
from .runtime.passes import PassReport, PassResult
from .runtime.properties.properties import (
    Configuration,
    Metric,
    Property,
    parse_boolean,
    parse_choice,
    parse_integer,
    parse_mapping,
    parse_text,
    slot_count,
    stream_count,
)
from .runtime.properties.property_parsers import Parser
from .runtime.runs.bindings import Bindings
from .runtime.runs.deadline import Deadline
from .runtime.runs.run import Run, RunOwner
from .runtime.runs.slot import Slot
from .runtime.runs.stage import Stage, Stop
from .runtime.tensors.device_array import AdoptArray
from .runtime.tensors.tensor import ports_of

__all__ = [
    "AdoptArray",
    "Bindings",
    "Blob",
    "BlobSource",
    "BlobWriter",
    "Configuration",
    "CoreHandle",
    "Deadline",
    "ExecutorOwner",
    "ExportTarget",
    "MakePlugin",
    "Metric",
    "NetworkRecord",
    "NodeRule",
    "Parser",
    "PassReport",
    "PassResult",
    "Property",
    "Run",
    "RunOwner",
    "RunningNetwork",
    "Slot",
    "Stage",
    "Stop",
    "TypeRuleOf",
    "copy_graph",
    "parse_boolean",
    "parse_choice",
    "parse_integer",
    "parse_mapping",
    "parse_text",
    "ports_of",
    "slot_count",
    "stream_count",
]
