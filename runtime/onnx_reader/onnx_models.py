"""Reading any ONNX model by onnx's own means: protobuf, converter, inliner and inference."""

from __future__ import annotations

import onnx
import onnx.helper

from ...errors import ModelError
from ...executors import find_shortage
from ..graph import Model, check_graph
from ..onnx_native.calls import start_helper
from ..onnx_native.element_types import add_element_types
from ..type_inference import correct_graph_types, infer_graph_types
from ..type_inference.collected_types import promise_to_bodies
from ..type_inference.declared_lengths import with_declared_symbols
from ..type_inference.promised_types import keep_promises, promised_values
from .conversion.builder import build_graph
from .conversion.declared_types import infer_afresh
from .conversion.functions import inline_functions
from .conversion.mixed_element_types import check_element_types
from .conversion.naming import name_nodes
from .conversion.opset_conversion import convert, is_newest, normalize_opsets, read_opsets
from .conversion.schema_signature import check_signatures
from .conversion.structure import name_unused_outputs, order_nodes
from .data.weights import Weights
from .origins import Origins
from .source import ModelSource, Source, load_source, source_label, source_name
from .wire.limits import check_limits

__all__ = ["read_any_model"]


def read_any_model(source: ModelSource, *, is_mapped: bool = False) -> Model:
    """Read a model as ``read_model`` does; raises ModelError or DeviceError, and nothing else."""
    start_helper()
    label, name = source_label(source), source_name(source)
    try:
        return _read(load_source(source), is_mapped)
    except ModelError as error:
        raise error.of_model(label, name) from error
    except Exception as error:
        lacking = find_shortage(error, f"reading {label}")
        if lacking is not None:
            raise lacking from error
        text = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"cannot be read: {text}").of_model(label, name) from error


def _read(source: Source, is_mapped: bool) -> Model:
    proto, path = source.proto, source.path
    check_limits(proto.graph)
    weights = Weights(path.parent if path else None, source.skimmed, is_mapped=is_mapped)
    origins = Origins()
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    producer = " ".join(filter(None, [proto.producer_name, proto.producer_version]))
    weights.take_out(proto)
    normalize_opsets(proto)
    order_nodes(proto)
    name_nodes(proto.graph.node, origins)
    check_signatures(proto.graph.node, read_opsets(proto))
    proto = inline_functions(proto, origins)
    if proto.graph.value_info and not is_newest(proto):
        proto = infer_afresh(proto)  # the converter believes what the file says
    proto = convert(proto, origins)
    name_unused_outputs(proto)
    proto = infer_afresh(proto)
    graph = build_graph(proto.graph, weights, origins)
    opsets = read_opsets(proto)
    declared = [value.type for value in graph.outputs]
    promised = {value: value.type for value in promised_values(graph)}
    # Where our own rules suffice, they tell more than onnx does.
    if not infer_graph_types(graph, leaves_lengths=True):
        check_element_types(graph, opsets)
        correct_graph_types(graph)
        add_element_types(graph, opsets)
    keep_promises(graph, promised)
    promise_to_bodies(zip(graph.outputs, declared, strict=True))
    for value, known in zip(graph.outputs, declared, strict=True):
        value.type = with_declared_symbols(value.type, known)
    check_graph(graph)
    needed = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    ir_version = max(proto.ir_version, needed)
    model = Model(
        graph, opsets, ir_version=ir_version, producer=producer, metadata=metadata, path=path
    )
    model.is_mapped = weights.has_mapped
    return model
