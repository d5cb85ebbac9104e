"""Names for subgraphs that are the same from run to run and from machine to machine.

They are made when somebody looks: most processes of few runs end before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....executors.cached_property import cached_property
from ....executors.late_imports import late_imports
from ....runtime.graph import DType, Graph, graph_text

__all__ = ["PlanId", "SubgraphId"]

Array = np.ndarray[Any, Any]


class PlanId:
    """The name of one plan: ``str`` makes 12 hexadecimal digits of it, once. Thread-safe."""

    __slots__ = ("_ids", "_inputs", "_name")

    def __init__(self, ids: SubgraphId, inputs: Sequence[tuple[str, Sequence[int], Any]]) -> None:
        self._ids, self._inputs = ids, inputs
        self._name = ""

    def __str__(self) -> str:
        if not self._name:
            self._name = self._ids.digits(self._inputs)
        return self._name


class SubgraphId:
    """Names the plans of one graph, as it is now. Thread-safe.

    A name depends on the graph's names, operators, attributes and types, on the passes that rewrite
    it, the type that float32 values are held in, and what a plan is for. It does not depend on the
    content of large weights.
    """

    def __init__(self, graph: Graph, float_dtype: DType, passes: Iterable[str]) -> None:
        self._made_by = f"{float_dtype.label}\n{' '.join(passes)}\n"
        self._text = f"{self._made_by}{graph_text(graph)}"

    @cached_property
    def _hash(self) -> Any:
        with late_imports:
            import hashlib

        return hashlib.sha256(self._text.encode("utf-8", "surrogatepass"))

    def for_graph(self, graph: Graph) -> SubgraphId:
        """Name the plans of another graph that are made in the same way."""
        made = SubgraphId.__new__(SubgraphId)
        made._made_by, made._text = self._made_by, f"{self._made_by}{graph_text(graph)}"
        return made

    def of(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> PlanId:
        """Return the name of the plan for these inputs."""
        given = [(name, shape, contents.get(name)) for name, shape in sorted(shapes.items())]
        return PlanId(self, given)

    def digits(self, inputs: Iterable[tuple[str, Sequence[int], Array | None]]) -> str:
        """Write the name of a plan for inputs of these shapes and, of some, this content."""
        made = self._hash.copy()
        for name, shape, content in inputs:
            given = "" if content is None else content.tolist()
            made.update(f"{name} {list(shape)} {given}\n".encode("utf-8", "surrogatepass"))
        digits: str = made.hexdigest()[:12]
        return digits
