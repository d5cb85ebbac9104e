"""A model of open shapes, with those fusions done that need none, so that plans are made faster.

Every new shape costs a walk of all passes over a copy of the model. What exporters write in five to
ten nodes for each normalisation and activation is the larger part of a transformer's nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.graph import Graph, Model
from ....runtime.graph.traversal import all_nodes
from ....runtime.passes import ConstantFolding, DeadCode, Pass, run_passes
from ....runtime.type_inference import has_static_types, infer_graph_types
from ..passes.quantization_facts import is_int8_weights

__all__ = ["prepared_model"]


def prepared_model(model: Model, passes: Sequence[Pass]) -> Model | None:
    """Copy a model and run these passes on the copy; None where that is in vain.

    It is for a network of one plan, for a model without any operator that the passes want, and for
    one whose types our own rules cannot infer: onnx knows nothing of fused nodes.
    """
    if has_static_types(model.inputs) or not _may_find(passes, model.graph):
        return None
    prepared = model.copy()
    if not infer_graph_types(prepared.graph):
        prepared.dispose()
        return None
    folding = ConstantFolding(is_kept=is_int8_weights)
    run_passes(prepared, (*passes, folding, DeadCode()), check=False)
    return prepared


def _may_find(passes: Sequence[Pass], graph: Graph) -> bool:
    op_types = {node.op_type for node in all_nodes(graph)}
    return any(
        item.wanted_ops is None or not op_types.isdisjoint(item.wanted_ops) for item in passes
    )
