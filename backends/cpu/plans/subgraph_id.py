"""Names for subgraphs that are the same from run to run and from machine to machine."""

from __future__ import annotations

import hashlib

from ....runtime.graph import DType, Graph, graph_text

__all__ = ["subgraph_id"]


def subgraph_id(graph: Graph, float_dtype: DType) -> str:
    """Return a short name for the graph of a plan: 12 hexadecimal digits.

    It depends on names, operators, attributes, shapes and the type that float32 values are held
    in, and not on the content of large weights.
    """
    text = f"{float_dtype.label}\n{graph_text(graph)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
