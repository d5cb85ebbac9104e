"""Running passes: requirements, patches one by one, guarantees, and a name for every failure."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from ....errors import AioInferError, GraphError
from ....executors import find_shortage
from ....executors.cached_property import cached_property
from ...graph import Graph, Model, Node, check_graph
from ...graph.traversal import all_nodes
from .graph_properties import PROPERTIES
from .name_table import NameTable
from .pass_base import Pass
from .pass_report import PassReport, PassResult

__all__ = ["find_bad_patch", "run_passes"]

MAX_ROUNDS = 100
"""Rounds of one pass; every round changes something, so more of them are two undoing each other."""


def run_passes(
    model: Model,
    passes: Sequence[Pass],
    stop_after: int | None = None,
    check: bool = True,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> PassReport:
    """Run passes over the model's graph, in place, each until it finds nothing more.

    ``stop_after`` ends the run after that many patches over all passes, so that "which rewrite
    broke it" is a search over one integer (``find_bad_patch``). ``check`` verifies the graph before
    the first and after every pass, and what a pass requires and guarantees; patches are checked
    always. ``clock`` is in seconds. Raises GraphError with the pass, the patch, and the passes that
    ran before; the graph is then as the last whole patch left it. DeviceError for want of memory,
    and what else of ours a pass raises, with that in a note.
    """
    return _Run(model, stop_after, check, clock).run(passes)


def find_bad_patch(
    model: Model, passes: Sequence[Pass], is_good: Callable[[Model], bool]
) -> str | None:
    """Return the name of the patch that turns a good model bad; None if the whole run is good.

    Runs the passes on copies, O(log patches) times; the model stays as it is. ``is_good`` judges a
    copy, and must accept the untouched model. Where several patches are bad, it is one of them.
    """
    whole = model.copy()
    report = run_passes(whole, passes, check=False)
    if is_good(whole):
        return None
    good, bad = 0, report.patch_count
    while bad - good > 1:
        middle = (good + bad) // 2
        partial = model.copy()
        run_passes(partial, passes, stop_after=middle, check=False)
        if is_good(partial):
            good = middle
        else:
            bad = middle
    return f"patch {bad}, {report.describe_patch(bad)}"


class _Run:
    """One run over one model: the names that are taken, and how many patches were applied."""

    def __init__(
        self, model: Model, stop_after: int | None, check: bool, clock: Callable[[], float]
    ) -> None:
        self._model = model
        self._most = math.inf if stop_after is None else stop_after
        self._check = check
        self._clock = clock
        self._has_bodies = False
        self._op_types: set[str] = set()
        """Operators of the nodes and of those in bodies, and some that patches have removed."""
        for node in model.graph.nodes:
            self._note_added(node)
        self._results: list[PassResult] = []
        self._count = 0
        self._patches: list[str] = []
        self._gone: dict[str, None] = {}
        self._held: set[str] = set()
        """Properties that were found to hold, and that no patch has touched since."""

    @cached_property
    def _names(self) -> NameTable:
        return NameTable(self._model.graph)

    def run(self, passes: Sequence[Pass]) -> PassReport:
        if self._check and passes:
            self._verify_graph("before the first pass")
        for item in passes:
            if self._count >= self._most:
                break
            wanted = item.wanted_ops
            may_find = wanted is None or not self._op_types.isdisjoint(wanted)
            if item.cleans and self._model.is_clean and not self._count:
                may_find = False
            if self._check or may_find:
                self._run_pass(item.made(), may_find)
            else:
                self._results.append(_not_asked(item.name))
        if self._count:
            self._model.is_settled = self._model.is_clean = False
        removed = dict.fromkeys(name for result in self._results for name in result.removed_names)
        gone = self._without_carried(removed) if removed else ()
        return PassReport(tuple(self._results), gone, self._count >= self._most)

    def _run_pass(self, item: Pass, may_find: bool) -> None:
        started = self._clock()
        self._patches, self._gone = [], {}
        if self._check:
            self._verify(item, item.requires, "requires")
        rounds = self._rewrite(item) if may_find else 0
        if self._patches:
            self._held.clear()
        if self._check and self._patches:
            self._verify_graph(f"after pass {item.name!r}, last patch {self._patches[-1]!r}")
        if self._check and self._count < self._most:
            self._verify(item, item.guarantees, "guarantees")
        gone = self._without_carried(self._gone) if self._gone else ()
        elapsed_s = self._clock() - started
        self._results.append(PassResult(item.name, tuple(self._patches), gone, rounds, elapsed_s))

    def _note_added(self, node: Node) -> None:
        self._op_types.add(node.op_type)
        bodies = node.bodies() if node.attributes else ()
        if bodies:
            self._has_bodies = True
            self._op_types.update(inner.op_type for body in bodies for inner in all_nodes(body))

    def _rewrite(self, item: Pass) -> int:
        """Apply a pass until it finds nothing more, and return how many rounds that took."""
        try:
            bound = item.bind(self._model)
        except Exception as error:
            self._fail(error, f"pass {item.name!r} failed before its first patch")
        rounds = 0
        while self._count < self._most:
            before = self._count
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise GraphError(
                    f"pass {item.name!r} still finds something after {MAX_ROUNDS} rounds, last "
                    f"{self._patches[-1]!r}; its rewrites undo each other{self._history()}"
                )
            for graph, outer in self._graphs(item):
                self._visit(bound, graph, outer)
            if self._count == before or item.finds_all:
                break
        return rounds

    def _visit(self, item: Pass, graph: Graph, outer: tuple[Graph, ...]) -> None:
        if self._count >= self._most:
            return
        patch = None
        try:
            for patch in item.find(graph):
                self._gone.update(dict.fromkeys(patch.apply(graph, self._names, outer)))
                for addition in patch.additions:
                    self._note_added(addition.node)
                self._patches.append(patch.description)
                self._count += 1
                if self._count >= self._most:
                    return
                patch = None
        except Exception as error:
            doing = f"applying {patch.description!r}" if patch else "looking for its next patch"
            where = (
                f"pass {item.name!r} failed in graph {graph.name!r}, {doing} (patch "
                f"{self._count + 1} of the run)"
            )
            self._fail(error, where)

    def _fail(self, error: Exception, where: str) -> NoReturn:
        """Raise the error with the pass's name; those of model or resources keep their class."""
        if isinstance(error, AioInferError) and not isinstance(error, GraphError):
            error.add_note(f"{where}{self._history()}")
            raise error
        text = str(error) if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"
        found = find_shortage(error, where) or GraphError(f"{where}: {text}{self._history()}")
        raise found from error

    def _graphs(self, item: Pass) -> Iterable[tuple[Graph, tuple[Graph, ...]]]:
        graph = self._model.graph
        if item.enters_bodies and self._has_bodies:
            return _graphs(graph, ())
        return ((graph, ()),)

    def _verify_graph(self, when: str) -> None:
        try:
            check_graph(self._model.graph)
        except GraphError as error:
            raise GraphError(f"the graph is broken {when}: {error}{self._history()}") from error
        self._held.add("topological order")

    def _verify(self, item: Pass, properties: frozenset[str], verb: str) -> None:
        wanted = sorted(properties - self._held)
        if not wanted:
            return
        for graph, _ in self._graphs(item):
            for name in wanted:
                where = PROPERTIES[name](graph)
                if where is not None:
                    raise GraphError(
                        f"pass {item.name!r} {verb} {name!r}, which graph {graph.name!r} has not: "
                        f"{where}{self._history()}"
                    )

    def _history(self) -> str:
        ran = ", ".join(result.name for result in self._results) or "none"
        return (
            f"; passes that ran before: {ran}; run_passes(..., stop_after=n) stops after any of "
            f"the {self._count} patches so far"
        )

    def _without_carried(self, names: dict[str, None]) -> tuple[str, ...]:
        """Leave out the names that a node of the model still carries."""
        carried = {name for node in all_nodes(self._model.graph) for name in node.fused_from}
        return tuple([name for name in names if name not in carried])


@functools.cache
def _not_asked(name: str) -> PassResult:
    return PassResult(name, (), (), 0, 0.0)


def _graphs(graph: Graph, outer: tuple[Graph, ...]) -> Iterator[tuple[Graph, tuple[Graph, ...]]]:
    """Walk a graph and its bodies, each with the graphs around it, from the nearest on.

    A body is looked up only when its turn comes, so patches to the graphs around it are allowed.
    """
    yield graph, outer
    for node in graph.nodes:
        for body in node.bodies():
            yield from _graphs(body, (graph, *outer))
