"""A pass whose module is imported when a graph has an operator that the pass wants."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ....executors.cached_property import cached_property
from ....executors.late_imports import late_imports
from ...graph import Graph
from .graph_patch import GraphPatch
from .pass_base import Pass

__all__ = ["LatePass"]


class LatePass(Pass):
    """Stands in a list of passes for one that most models do not need.

    ``place`` is ``module:Class``, the module below ``package``; ``wanted_ops`` are the pass's own,
    separated by spaces. What else is given makes the pass, once.
    """

    def __init__(
        self, package: str, place: str, name: str, wanted_ops: str, *given: Any, **options: Any
    ) -> None:
        self.name, self.wanted_ops = name, frozenset(wanted_ops.split())
        self._package, self._place = package, place
        self._given, self._options = given, options

    @cached_property
    def _made(self) -> Pass:
        module, _, kind = self._place.partition(":")
        with late_imports:
            make = getattr(import_module(f"{self._package}.{module}"), kind)
            made: Pass = make(*self._given, **self._options)
        return made

    def made(self) -> Pass:
        return self._made

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        return self._made.find(graph)
