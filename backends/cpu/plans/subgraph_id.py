"""Names for subgraphs that are the same from run to run and from machine to machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
        text = f"{float_dtype.label}\n{' '.join(passes)}\n{graph_text(graph)}"
        self._hash = hashlib.sha256(text.encode("utf-8", "surrogatepass"))

    def of(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> str:
        """Return the name of the plan for these inputs: 12 hexadecimal digits."""
        made = self._hash.copy()
        for name, shape in sorted(shapes.items()):
            given = contents[name].tolist() if name in contents else ""
            made.update(f"{name} {list(shape)} {given}\n".encode("utf-8", "surrogatepass"))
        return made.hexdigest()[:12]
