"""The batch of a model: found where it is open, opened where it is 1 and rows are proved apart."""

from __future__ import annotations

import numpy as np

from ...runtime.graph import Graph, Model, TensorType, Value
from ...runtime.passes.rewriting.name_table import NameTable
from ...runtime.plans.batch_axis import BatchAxis, find_batch_axis, forget_types
from ...runtime.type_inference import infer_graph_types

__all__ = ["with_open_batch"]

BATCH = "batch"


def with_open_batch(model: Model) -> tuple[Model, BatchAxis] | str:
    """Return the model with an open batch, and where that is; or say why requests cannot share one.

    A model whose inputs all begin with 1 is copied and opened. Nothing is computed. Pure.
    """
    opened = model
    if all(_begins_with_one(value.type) for value in model.inputs) and model.inputs:
        opened = _opened(model)
    found = find_batch_axis(opened)
    if isinstance(found, str):
        return found
    apart = [value.name for value in opened.inputs if value.name not in found.inputs]
    if apart:
        return f"input {apart[0]!r} has no batch, and may differ from request to request"
    if not found.outputs:
        return "no output has a batch"
    return opened, found


def _begins_with_one(type_: object) -> bool:
    return isinstance(type_, TensorType) and (type_.shape or ())[:1] == (1,)


def _opened(model: Model) -> Model:
    """Copy a model with an open first dimension of its inputs, and types that follow from that."""
    opened = model.copy()
    _open_reshapes(opened.graph)
    for value in opened.inputs:
        if isinstance(value.type, TensorType) and value.type.shape:
            value.type = TensorType(value.type.dtype, (BATCH, *value.type.shape[1:]))
    forget_types(opened)
    infer_graph_types(opened.graph)
    return opened


def _open_reshapes(graph: Graph) -> None:
    """Have each Reshape of a first length of 1 to another one keep it, whatever it will be.

    For a batch of one that is the same.
    """
    names = NameTable(graph)
    for node in graph.nodes:
        if node.op != "Reshape" or node.attributes.get("allowzero"):
            continue
        given, target = node.inputs
        if given is None or target is None or target.constant is None:
            continue
        if not _begins_with_one(given.type) or target.constant.tolist()[:1] != [1]:
            continue
        lengths = np.array(target.constant)
        lengths[0] = 0  # as the input's
        kept = Value(names.claim_value(target.name), target.type, lengths)
        node.replace_input(1, graph.add_initializer(kept))
