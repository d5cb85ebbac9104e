"""What onnx's inference says of Attention without knowing it.

It takes an open length for 0, leaves the keys of the past out of the scores, and calls present keys
and values scalars.
"""

from __future__ import annotations

import onnx

__all__ = ["drop_guessed_types", "has_guessed_types", "hidden_guesses"]

_SCORES = 3
_PAST_KEYS = 4
_HIDDEN_DOMAIN = "aioinfer.guessed"


def has_guessed_types(model: onnx.ModelProto) -> bool:
    """True if the main graph has a node of which onnx may guess."""
    return any(map(_is_attention, model.graph.node))


def drop_guessed_types(
    model: onnx.ModelProto, inferred: onnx.ModelProto
) -> list[onnx.ValueInfoProto]:
    """Return the types of Attention's outputs without what is guessed; nothing if nothing is.

    ``inferred`` is the model after inference. Only in the main graph.
    """
    infos = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output)}
    found: list[onnx.ValueInfoProto] = []
    is_guessed = False
    for node in model.graph.node:
        if not _is_attention(node):
            continue
        has_past = len(node.input) > _PAST_KEYS and bool(node.input[_PAST_KEYS])
        for index, name in enumerate(node.output):
            if name not in infos:
                continue
            known = onnx.ValueInfoProto()
            known.CopyFrom(infos[name])
            if known.type.HasField("tensor_type"):
                is_guessed |= _drop(known.type.tensor_type, index, has_past)
            found.append(known)
    return found if is_guessed else []


def hidden_guesses(
    model: onnx.ModelProto, types: list[onnx.ValueInfoProto]
) -> dict[int, onnx.NodeProto]:
    """Hide every Attention from inference, and declare what it makes; what there was, by index."""
    originals: dict[int, onnx.NodeProto] = {}
    for index, node in enumerate(model.graph.node):
        if _is_attention(node):
            originals[index] = onnx.NodeProto()
            originals[index].CopyFrom(node)
            node.domain = _HIDDEN_DOMAIN
    declared = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    for known in types:
        info = declared.get(known.name) or model.graph.value_info.add(name=known.name)
        info.type.CopyFrom(known.type)
    return originals


def _is_attention(node: onnx.NodeProto) -> bool:
    return node.op_type == "Attention" and not node.domain


def _drop(proto: onnx.TypeProto.Tensor, index: int, has_past: bool) -> bool:
    """Leave open what is guessed of an output; whether there was anything."""
    if not proto.HasField("shape"):
        return False
    dims = proto.shape.dim
    if not dims:
        proto.ClearField("shape")
        return True
    guessed = [dim for dim in dims if dim.HasField("dim_value") and dim.dim_value == 0]
    if index == _SCORES and has_past and dims[-1].HasField("dim_value"):
        guessed.append(dims[-1])
    for dim in guessed:
        dim.ClearField("dim_value")
    return bool(guessed)
