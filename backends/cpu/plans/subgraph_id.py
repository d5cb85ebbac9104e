"""Names for subgraphs that are the same from run to run and from machine to machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from ....runtime.graph import DType, Graph, graph_text

__all__ = ["SubgraphId"]

Array = np.ndarray[Any, Any]


class SubgraphId:
    """Names the plans of one graph. Thread-safe.

    A name depends on the graph's names, operators, attributes and types, on the passes that rewrite
    it, the type that float32 values are held in, and what a plan is for. It does not depend on the
    content of large weights.
    """

    def __init__(self, graph: Graph, float_dtype: DType, passes: Iterable[str]) -> None:
        self._made_by = f"{float_dtype.label}\n{' '.join(passes)}\n"
        self._hash = self._hash_with(graph)

    def _hash_with(self, graph: Graph) -> Any:
        text = f"{self._made_by}{graph_text(graph)}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass"))

    def for_graph(self, graph: Graph) -> SubgraphId:
        """Name the plans of another graph that are made in the same way."""
        made = copy(self)
        made._hash = made._hash_with(graph)
        return made

    def of(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> str:
        """Return the name of the plan for these inputs: 12 hexadecimal digits."""
        made = self._hash.copy()
        for name, shape in sorted(shapes.items()):
            given = contents[name].tolist() if name in contents else ""
            made.update(f"{name} {list(shape)} {given}\n".encode("utf-8", "surrogatepass"))
        digits: str = made.hexdigest()[:12]
        return digits
