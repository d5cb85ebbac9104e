"""What a file says of the types of values between its nodes, weighed against what onnx infers.

A file's word on a value that one of ONNX's own operators makes is worth nothing where inference
tells something else: it is stale, or the file is damaged, and a pass that believed it would compute
wrong shapes. So all such types are taken out before inference. What comes back is the element type
of values of which inference tells nothing, and the lengths and symbols that it leaves open where
they are a promise: for outputs of the model, and for what goes into and out of a body and is no
state of a loop, since a loop without iterations has no other word on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx

from ...graph import TensorType, ValueType
from ...onnx_native.inference import with_inferred_types
from ...onnx_writer.types import fill_type, type_from_proto
from ...type_inference.promised_types import promise
from ...type_inference.rules import STANDARD_DOMAINS
from .structure import body_protos

__all__ = ["infer_afresh"]


def infer_afresh(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer all types from the inputs of the model on; the model itself is used up.

    Domains are normalised. Values of other operators keep the types that the file gives them.
    """
    declared = _take_out(model.graph)
    inferred = with_inferred_types(model)
    _put_back(inferred.graph, declared)
    return inferred


@dataclass(frozen=True)
class _Declared:
    """What was taken out of one graph, by name, and out of the bodies of its nodes, in order."""

    inner: dict[str, ValueType | None] = field(default_factory=dict)
    promised: dict[str, ValueType | None] = field(default_factory=dict)
    bodies: list[_Declared] = field(default_factory=list)


def _take_out(graph: onnx.GraphProto, node: onnx.NodeProto | None = None) -> _Declared:
    """Take the types out of a graph, or of a body of this node."""
    declared = _Declared()
    carried = _carried_names(node, graph)
    ours = [inside for inside in graph.node if inside.domain in STANDARD_DOMAINS]
    made = {name for inside in ours for name in inside.output}
    for index in reversed(range(len(graph.value_info))):
        info = graph.value_info[index]
        if info.name in made:
            declared.inner[info.name] = _type_of(info)
            del graph.value_info[index]
    for info in graph.output:
        if info.name in made:
            types = declared.inner if info.name in carried else declared.promised
            types[info.name] = _type_of(info)
            info.ClearField("type")
    for info in () if node is None else graph.input:
        types = declared.inner if info.name in carried else declared.promised
        types[info.name] = _type_of(info)
        info.ClearField("type")
    declared.bodies.extend(_take_out(body, owner) for owner, body in _bodies(graph))
    return declared


def _carried_names(node: onnx.NodeProto | None, body: onnx.GraphProto) -> set[str]:
    """Return the names of a loop's states: their lengths are those of what is given to it."""
    if node is None or node.op_type not in ("Loop", "Scan"):
        return set()
    first_input, first_output = (2, 1) if node.op_type == "Loop" else (0, 0)
    scanned = [item.i for item in node.attribute if item.name == "num_scan_inputs"]
    count = len(node.input) - (2 if node.op_type == "Loop" else sum(scanned))
    states = [
        *body.input[first_input : first_input + count],
        *body.output[first_output : first_output + count],
    ]
    return {info.name for info in states}


def _put_back(graph: onnx.GraphProto, declared: _Declared) -> None:
    infos = {info.name: info for info in (*graph.value_info, *graph.output, *graph.input)}
    for name, known in declared.inner.items():
        info = infos.get(name) or graph.value_info.add(name=name)
        if _type_of(info) is None:
            info.ClearField("type")
            fill_type(info.type, _without_lengths(known))
    for name, known in declared.promised.items():
        found = _type_of(infos[name])
        infos[name].ClearField("type")
        fill_type(infos[name].type, promise(found, known))
    for (_, body), inner in zip(_bodies(graph), declared.bodies, strict=True):
        _put_back(body, inner)


def _bodies(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto]]:
    for node in graph.node:
        for _, body in body_protos(node):
            yield node, body


def _type_of(info: onnx.ValueInfoProto) -> ValueType | None:
    return type_from_proto(info.type, f"value {info.name!r}")


def _without_lengths(known: ValueType | None) -> ValueType | None:
    if known is None:
        return None
    if isinstance(known, TensorType):
        return TensorType(known.dtype)
    element = _without_lengths(known.element)
    return known.with_element(element)
