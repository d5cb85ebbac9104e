"""Reading ONNX models: from a path, bytes, a file or a proto to a Model of one operator set.

Importing this package imports onnx: do it inside the function that needs it.
"""

from __future__ import annotations

import onnx
import onnx.helper

from ...errors import ModelError
from ..graph import Model, check_graph
from ..onnx_writer.native import start_helper
from .builder import build_graph
from .conversion import convert, is_newest, normalize_opsets
from .declared_types import infer_afresh
from .functions import inline_functions
from .naming import Origins, name_nodes
from .source import ModelSource, Source, load_source, source_label
from .structure import name_unused_outputs, order_nodes
from .weights import Weights

__all__ = ["ModelSource", "read_model"]


def read_model(source: ModelSource) -> Model:
    """Read a model and bring it to the newest opset that onnx knows, converted by onnx itself.

    source: a path, the bytes of a file, a file opened in binary mode, or a ModelProto, which is not
    changed. Model-local functions are inlined. Every node has a unique name; ``fused_from`` gives
    the nodes of the file that it stands for, and metadata such as the affinity is kept. Constant
    nodes become initializers; weights that are listed as inputs, which a caller could replace in
    ONNX, are constants, too. External data is looked for in the folder of the path only and mapped
    into memory, so the file has to stay as it is while the model lives; the arrays of constants are
    read-only. Blocks; any thread.

    Raises ModelError, with the cause chained, for whatever is not a valid model, and nothing else.
    """
    start_helper()
    label = source_label(source)
    try:
        return _read(load_source(source))
    except ModelError as error:
        raise ModelError(f"{label}: {error}") from error
    except Exception as error:
        raise ModelError(f"{label}: cannot be read: {error}") from error


def _read(source: Source) -> Model:
    proto, path = source.proto, source.path
    weights, origins = Weights(path.parent if path else None, source.skimmed), Origins()
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    producer = " ".join(filter(None, [proto.producer_name, proto.producer_version]))
    weights.take_out(proto)
    normalize_opsets(proto)
    order_nodes(proto)
    name_nodes(proto.graph.node, origins)
    proto = inline_functions(proto, origins)
    if proto.graph.value_info and not is_newest(proto):
        proto = infer_afresh(proto)  # the converter believes what the file says
    proto = convert(proto, origins)
    name_unused_outputs(proto)
    proto = infer_afresh(proto)
    graph = build_graph(proto.graph, weights, origins)
    check_graph(graph)
    opsets = {item.domain: item.version for item in proto.opset_import}
    needed = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    ir_version = max(proto.ir_version, needed)
    return Model(
        graph, opsets, ir_version=ir_version, producer=producer, metadata=metadata, path=path
    )
