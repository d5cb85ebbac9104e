"""What a pass is, and the graph properties that it may require and guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from ....errors import GraphError, nearest
from ...graph import Graph, Model
from .graph_patch import GraphPatch
from .graph_properties import PROPERTIES

__all__ = ["Pass"]


class Pass(ABC):
    """A rewrite of graphs: it yields patches, and ``run_passes`` checks, applies and names them.

    ``requires`` and ``guarantees`` are names of ``PROPERTIES``: what must hold before, and what
    holds after it has run to its end, in the graphs that it visits. What ``check_graph`` checks
    always holds. An object of a pass has no state and may be shared; see ``bind``.
    """

    name: str
    requires: ClassVar[frozenset[str]] = frozenset()
    guarantees: ClassVar[frozenset[str]] = frozenset()
    enters_bodies: ClassVar[bool] = True
    """Whether it also rewrites the bodies of control flow, each as a graph of its own."""
    wanted_ops: frozenset[str] | None = None
    """Operators, of whichever domain, without any of which it finds nothing in a graph, so that it
    is not asked; None: it has to look."""
    finds_all: ClassVar[bool] = False
    """Whether it finds all in one walk: what a patch makes possible lies behind its nodes."""
    cleans: ClassVar[bool] = False
    """Whether it finds nothing in a model that ``is_clean``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse property names that no predicate stands for."""
        super().__init_subclass__(**options)
        for name in (*cls.requires, *cls.guarantees):
            if name not in PROPERTIES:
                raise GraphError(
                    f"pass {cls.__name__} names an unknown graph property {name!r}"
                    f"{nearest(name, PROPERTIES)}"
                )

    def made(self) -> Pass:
        """Return the pass itself; see ``LatePass``."""
        return self

    def bind(self, model: Model) -> Pass:
        """(optional) Give the pass for one run over this model; by default the pass itself."""
        return self

    @abstractmethod
    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        """Yield rewrites one at a time; each is applied before the next is asked for.

        The graph changes only between two patches: do not hold iterators over values' uses. It is
        called again until it yields nothing, unless it ``finds_all``.
        """

    def __repr__(self) -> str:
        return f"<Pass {self.name!r}>"
