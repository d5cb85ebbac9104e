"""Which operator sets a graph needs: the oldest in which it means the same."""

from __future__ import annotations

import onnx
import onnx.defs

from ..graph import Model
from ..graph.traversal import all_nodes

__all__ = ["oldest_opsets"]


def oldest_opsets(model: Model) -> dict[str, int]:
    """Return for each domain of a model the oldest version that has all its operators as they are.

    A runtime that is older than the model's operator set may still run the operators in it, and
    some know an operator's function body only up to the version that it was written for. Domains
    that onnx does not know keep their version, and so does one with an operator that it lacks.
    """
    oldest: dict[str, int] = {}
    for node in all_nodes(model.graph):
        version = model.opsets.get(node.domain)
        if version is not None:
            since = _since(node.op_type, node.domain, version)
            oldest[node.domain] = max(oldest.get(node.domain, 1), since)
    return {domain: oldest.get(domain, version) for domain, version in model.opsets.items()}


def _since(op_type: str, domain: str, version: int) -> int:
    try:
        return int(onnx.defs.get_schema(op_type, version, domain).since_version)
    except onnx.defs.SchemaError:
        return version
