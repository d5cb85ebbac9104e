"""Cutting a model into one model for each subgraph, and the tables that tie them together.

Pure. What crosses from one subgraph to another, as a direct input or because the body of a
control-flow node captures it, becomes one output of its producer and one input of each subgraph
that uses it. Constants are never cut: each subgraph refers to the same bytes. Graph inputs go to
every subgraph that uses them, or to none.

Ports keep the order that a reader expects: the model's own inputs and outputs first, then those
that a cut has made, as the consumers meet them, in topological order and input by input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....errors import GraphError
from ....runtime.graph import Graph, Model, Node, Value, ValueType, copy_node, size_bytes
from .selection import Subgraph

__all__ = ["CutModel", "Link", "PortPlace", "SubgraphModel", "cut_model", "node_edges"]


class PortPlace(NamedTuple):
    """A port of a subgraph: which subgraph, in order of execution, and which input or output."""

    subgraph: int
    port: int


class SubgraphModel(NamedTuple):
    """A subgraph as a model of its own, for one device."""

    device: str
    model: Model
    nodes: tuple[str, ...]


class Link(NamedTuple):
    """A value that crosses: the output that it leaves by, and the inputs that it enters by.

    ``bytes`` is what one copy of it takes; None where its type does not say.
    """

    value: str
    type: ValueType | None
    source: PortPlace
    targets: tuple[PortPlace, ...]
    bytes: int | None


@dataclass(frozen=True)
class CutModel:
    """A model in pieces, in order of execution, with its mapping tables.

    ``inputs[i]`` are the ports that input ``i`` of the model goes to; none if nothing uses it.
    ``outputs[i]`` is the port that gives output ``i``, or None if no node makes it: it is then an
    input of the model (``passed_inputs[i]``) or a constant (``constants[i]``).
    """

    subgraphs: tuple[SubgraphModel, ...]
    inputs: tuple[tuple[PortPlace, ...], ...]
    outputs: tuple[PortPlace | None, ...]
    links: tuple[Link, ...]
    passed_inputs: dict[int, str] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)

    def needs(self) -> list[list[int]]:
        """List for each subgraph those that must have run before."""
        found: list[set[int]] = [set() for _ in self.subgraphs]
        for link in self.links:
            for target in link.targets:
                found[target.subgraph].add(link.source.subgraph)
        return [sorted(indices) for indices in found]


def node_edges(graph: Graph) -> list[tuple[str, str]]:
    """List (producer, consumer) for every value that is not constant, captured ones included."""
    return [
        (value.producer.name, node.name)
        for node in graph.nodes
        for value in node.dependencies()
        if value.producer is not None and not value.is_constant
    ]


def cut_model(model: Model, subgraphs: Sequence[Subgraph[str]]) -> CutModel:
    """Cut a model; the subgraphs hold its nodes by name, each once, in order of execution.

    The model is not changed, and the pieces share nothing with it but the bytes of constants.
    Raises GraphError if a node is in no subgraph.
    """
    return _Cutter(model, subgraphs).cut()


class _Cutter:
    """The ports of every subgraph, collected first, and the graphs made from them."""

    def __init__(self, model: Model, subgraphs: Sequence[Subgraph[str]]) -> None:
        self._model, self._subgraphs = model, subgraphs
        self._owner = {
            name: index for index, subgraph in enumerate(subgraphs) for name in subgraph.nodes
        }
        for node in model.graph.nodes:
            if node.name not in self._owner:
                raise GraphError(
                    f"node {node.name!r} is in no subgraph; select them from this model's nodes"
                )
        self._inputs: list[dict[Value, None]] = [{} for _ in subgraphs]
        self._outputs: list[dict[Value, None]] = [{} for _ in subgraphs]
        self._constants: list[dict[Value, None]] = [{} for _ in subgraphs]
        self._members: list[list[Node]] = [[] for _ in subgraphs]

    def cut(self) -> CutModel:
        self._collect_own_ports()
        crossing = self._collect_crossing()
        entries = _places(self._inputs)
        exits = _places(self._outputs)
        pieces = tuple(
            SubgraphModel(subgraph.device, self._build(index), subgraph.nodes)
            for index, subgraph in enumerate(self._subgraphs)
        )
        outputs = list(enumerate(self._model.outputs))
        return CutModel(
            pieces,
            tuple(tuple(entries.get(value, ())) for value in self._model.inputs),
            tuple(exits[value][0] if value in exits else None for _, value in outputs),
            tuple(_link(value, exits[value][0], entries[value]) for value in crossing),
            {i: value.name for i, value in outputs if value in self._model.graph.inputs},
            {i: value.constant for i, value in outputs if value.is_constant},
        )

    def _collect_own_ports(self) -> None:
        given = {value: place for place, value in enumerate(self._model.inputs)}
        for node in self._model.graph.nodes:
            index = self._owner[node.name]
            self._members[index].append(node)
            for value in node.dependencies():
                if value in given:
                    self._inputs[index][value] = None
        for index, used in enumerate(self._inputs):
            self._inputs[index] = dict.fromkeys(sorted(used, key=given.__getitem__))
        for value in self._model.outputs:
            if value.producer is not None and not value.is_constant:
                self._outputs[self._owner[value.producer.name]][value] = None

    def _collect_crossing(self) -> list[Value]:
        crossing: dict[Value, None] = {}
        for node in self._model.graph.nodes:
            index = self._owner[node.name]
            for value in node.dependencies():
                if value.is_constant:
                    if value.producer is None or self._owner[value.producer.name] != index:
                        self._constants[index][value] = None
                elif value.producer is not None and self._owner[value.producer.name] != index:
                    self._outputs[self._owner[value.producer.name]][value] = None
                    self._inputs[index][value] = None
                    crossing[value] = None
        return list(crossing)

    def _build(self, index: int) -> Model:
        mapping: dict[Value, Value] = {}
        inputs = [_copied(value, mapping) for value in self._inputs[index]]
        graph = Graph(f"{self._model.name}.subgraph{index}", inputs)
        for value in self._constants[index]:
            graph.add_initializer(_copied(value, mapping))
        for node in self._members[index]:
            graph.append(copy_node(node, mapping))
        graph.outputs = [mapping[value] for value in self._outputs[index]]
        piece = self._model.with_graph(graph)
        piece.name = graph.name
        return piece


def _places(ports: Sequence[Mapping[Value, None]]) -> dict[Value, list[PortPlace]]:
    places: dict[Value, list[PortPlace]] = {}
    for index, values in enumerate(ports):
        for port, value in enumerate(values):
            places.setdefault(value, []).append(PortPlace(index, port))
    return places


def _link(value: Value, source: PortPlace, targets: Sequence[PortPlace]) -> Link:
    return Link(value.name, value.type, source, tuple(targets), size_bytes(value.type))


def _copied(value: Value, mapping: dict[Value, Value]) -> Value:
    fresh = mapping[value] = Value(value.name, value.type, value.constant)
    return fresh
