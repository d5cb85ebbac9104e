"""The types of values, inferred by onnx."""

from __future__ import annotations

from collections.abc import Iterator, Set

import onnx

from ...errors import ModelError
from ..graph import Graph, Model, Value, ValueType
from ..onnx_writer.model import ProtoWriter
from ..onnx_writer.types import merge_types, type_from_proto
from .calls import infer_shapes
from .element_types import add_element_types
from .guessed_types import drop_guessed_types, hidden_guesses

__all__ = ["drop_new_symbols", "infer_types", "known_symbols", "with_inferred_types"]

_LIKE_FIRST_INPUT = frozenset({"GroupNormalization"})

LONG_VECTOR = 10_000  # of a vector this long, onnx spends some 10 ms on propagating its elements


def infer_types(model: Model) -> None:
    """Infer the types of all values by onnx, in bodies too, from inputs and small constants.

    What a value's type already says stays, unless the inferred one is more exact: a length in
    place of a symbol, a symbol in place of nothing. A caller that changes a length of an input
    clears the types that depended on it first. Where onnx cannot infer, the types stay as they are,
    but for element types that schemas tell.
    Blocks while the graph, without its weights, is written and read.
    """
    writer = ProtoWriter(is_inline=False)
    inferred = with_inferred_types(writer.model(model))
    _take_types(model.graph, inferred.graph, writer)
    add_element_types(model.graph, model.opsets)


def with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer the types of what nodes make by onnx; where it cannot, the model stays as it is.

    Lengths that it cannot tell are left open: the symbols that it invents for them would be taken
    for others of the same name in the next inference.
    """
    symbols = known_symbols(model)
    originals = _stand_in(model)
    try:
        inferred = _infer(model)
        if inferred is not None and (types := drop_guessed_types(model, inferred)):
            originals |= hidden_guesses(model, types)
            inferred = _infer(model)
    finally:
        _restore(model, originals)
    if inferred is None:
        return model
    _restore(inferred, originals)
    drop_new_symbols(inferred, symbols)
    return inferred


def _infer(model: onnx.ModelProto) -> onnx.ModelProto | None:
    try:
        inferred = infer_shapes(model, data_prop=False)
        # Propagating the elements of shapes through the graph propagates those of every vector, at
        # gigabytes and seconds for an audio track.
        if not _has_long_vector(inferred.graph):
            inferred = infer_shapes(model, data_prop=True)
    except ModelError:  # a type that is not known is no error: kernels see the real arrays
        return None
    return inferred


def _stand_in(model: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """Put Identity for what onnx has no inference for and is of its input's type; what was there.

    Only in the main graph.
    """
    originals: dict[int, onnx.NodeProto] = {}
    for index, node in enumerate(model.graph.node):
        if node.op_type in _LIKE_FIRST_INPUT and not node.domain and node.input:
            originals[index] = onnx.NodeProto()
            originals[index].CopyFrom(node)
            node.op_type = "Identity"
            del node.input[1:]
            del node.attribute[:]
    return originals


def _restore(model: onnx.ModelProto, originals: dict[int, onnx.NodeProto]) -> None:
    for index, node in originals.items():
        model.graph.node[index].CopyFrom(node)


def known_symbols(model: onnx.ModelProto) -> frozenset[str]:
    """Collect the symbols that the model uses for lengths."""
    return frozenset(dim.dim_param for dim in _dims(model.graph))


def drop_new_symbols(model: onnx.ModelProto, known: Set[str]) -> None:
    """Leave those lengths open for which onnx has invented a symbol."""
    for dim in _dims(model.graph):
        if dim.dim_param and dim.dim_param not in known:
            dim.ClearField("dim_param")


def _has_long_vector(graph: onnx.GraphProto) -> bool:
    for proto in _type_protos(graph):
        if len(proto.shape.dim) == 1 and proto.shape.dim[0].dim_value > LONG_VECTOR:
            return True
    lengths = [tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 1]
    return max(lengths, default=0) > LONG_VECTOR


def _dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for proto in _type_protos(graph):
        yield from proto.shape.dim


def _type_protos(graph: onnx.GraphProto) -> Iterator[onnx.TypeProto.Tensor]:
    """Walk the tensor types of a graph and its bodies, those inside sequences and optionals too."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        proto = info.type
        while kind := proto.WhichOneof("value"):
            if kind == "tensor_type":
                yield proto.tensor_type
            if kind not in ("sequence_type", "optional_type"):
                break
            proto = getattr(proto, kind).elem_type
    for node in graph.node:
        for body in _bodies(node):
            yield from _type_protos(body)


def _take_types(graph: Graph, proto: onnx.GraphProto, writer: ProtoWriter) -> None:
    types = {
        info.name: found
        for info in (*proto.value_info, *proto.output, *proto.input)
        if (found := _type(info)) is not None
    }
    for node, node_proto in zip(graph.nodes, proto.node, strict=True):
        for value in node.outputs:
            _merge(value, types.get(writer.name(value)))
        for body, body_proto in zip(node.bodies(), _bodies(node_proto), strict=True):
            _take_types(body, body_proto, writer)
    for value in graph.inputs:
        _merge(value, types.get(writer.name(value)))


def _merge(value: Value, found: ValueType | None) -> None:
    value.type = merge_types(value.type, found)


def _type(info: onnx.ValueInfoProto) -> ValueType | None:
    try:
        return type_from_proto(info.type, f"value {info.name!r}")
    except ModelError:
        return None


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Walk the bodies in the order of Node.bodies()."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
