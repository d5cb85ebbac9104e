"""A graph in which each piece is one node, and the models of those pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ....runtime.graph import Dim, Graph, Model, Node, TensorType, Value, copy_node
from ....runtime.graph.copying import copy_values
from ..onednn.post_ops import CPU_DOMAIN
from .division import Piece
from .size_runs import SizeRun, join_sizes

__all__ = ["Contracted", "PieceModel", "SizeModel", "contract"]

Divide = Callable[[Graph, bool], list[Piece | Node]]


class PieceModel(NamedTuple):
    """A piece as a model of its own; ``in_body`` says that it is one of a body."""

    model: Model
    in_body: bool


class SizeModel(NamedTuple):
    """A run of shape arithmetic, and what it is given and makes in the graph that it is of."""

    run: SizeRun
    inputs: list[Value]
    outputs: list[Value]


@dataclass(frozen=True)
class Contracted:
    """The graph and, by node, what is joined in it. It shares the bytes of constants alone."""

    graph: Graph
    pieces: dict[Node, PieceModel] = field(default_factory=dict)
    sizes: dict[Node, SizeModel] = field(default_factory=dict)


def contract(model: Model, divide: Divide) -> Contracted:
    """Copy the graph of a model, bodies too, with the pieces that ``divide`` finds as nodes.

    ``divide`` takes whether a graph is a body.
    """
    return _Contraction(model, divide).contracted


class _Contraction:
    def __init__(self, model: Model, divide: Divide) -> None:
        self._model, self._divide = model, divide
        self._pieces: dict[Node, PieceModel] = {}
        self._sizes: dict[Node, SizeModel] = {}
        graph = self._copy(model.graph, {}, in_body=False)
        self.contracted = Contracted(graph, self._pieces, self._sizes)

    def _copy(self, graph: Graph, outer: dict[Value, Value], *, in_body: bool) -> Graph:
        mapping = dict(outer)
        made = Graph(graph.name, copy_values(graph.inputs, mapping))
        for value in graph.initializers.values():
            made.add_initializer(copy_values([value], mapping)[0])
        for node in graph.nodes:
            for value in node.outputs:
                if value.is_constant:
                    made.add_initializer(copy_values([value], mapping)[0])
        for item in join_sizes(self._divide(graph, in_body)):
            if isinstance(item, Node):
                made.append(self._step(item, mapping))
            elif not _results(item):
                continue
            elif isinstance(item, Piece):
                made.append(self._piece(item, mapping, in_body=in_body))
            else:
                made.append(self._size_run(item, mapping))
        made.outputs = [mapping.get(value, value) for value in graph.outputs]
        for name, value in list(made.initializers.items()):
            if not value.uses and not value.is_graph_output:
                del made.initializers[name]
                value.constant = None  # pieces have their own
        return made

    def _step(self, node: Node, mapping: dict[Value, Value]) -> Node:
        if not node.bodies():
            return copy_node(node, mapping)
        bodies = {
            key: self._copy(item, mapping, in_body=True) if isinstance(item, Graph) else item
            for key, item in node.attributes.items()
        }
        return Node(
            node.op_type,
            [None if value is None else mapping.get(value, value) for value in node.inputs],
            copy_values(node.outputs, mapping),
            bodies,
            name=node.name,
            domain=node.domain,
            fused_from=node.fused_from,
        )

    def _size_run(self, run: SizeRun, mapping: dict[Value, Value]) -> Node:
        inputs = [value for value in _used(run) if not value.is_constant]
        model = SizeModel(run, inputs, _results(run))
        contracted = _joined("Sizes", run, model.inputs, model.outputs, mapping)
        self._sizes[contracted] = model
        return contracted

    def _piece(self, piece: Piece, mapping: dict[Value, Value], *, in_body: bool) -> Node:
        used = _used(piece)
        inputs = [value for value in used if not value.is_constant]
        outputs = _results(piece)
        own: dict[Value, Value] = {}
        is_open = in_body or piece.level > 0
        graph = Graph(f"{self._model.graph.name}.piece{len(self._pieces)}")
        graph.inputs = copy_values(inputs, own)
        for value in graph.inputs:
            if is_open and isinstance(value.type, TensorType):
                value.type = _opened(value.type, keep_lengths=not in_body)
        for value in used:
            if value.is_constant:
                graph.add_initializer(copy_values([value], own)[0])
        for node in piece.nodes:
            graph.append(copy_node(node, own))
        graph.outputs = [own[value] for value in outputs]
        contracted = _joined("Piece", piece, inputs, outputs, mapping)
        model = self._model.with_graph(graph)
        model.name = self._model.name
        self._pieces[contracted] = PieceModel(model, in_body)
        return contracted


def _joined(
    op_type: str,
    piece: Piece | SizeRun,
    inputs: list[Value],
    outputs: list[Value],
    mapping: dict[Value, Value],
) -> Node:
    """Make the node in whose place several are computed."""
    return Node(
        op_type,
        [mapping.get(value, value) for value in inputs],
        copy_values(outputs, mapping),
        name=piece.nodes[0].name,
        domain=CPU_DOMAIN,
        fused_from=dict.fromkeys(name for node in piece.nodes for name in node.fused_from),
    )


def _used(piece: Piece | SizeRun) -> list[Value]:
    """List what the nodes use and do not make, constants too."""
    made = {value for node in piece.nodes for value in node.outputs}
    used = [value for node in piece.nodes for value in node.inputs if value is not None]
    return [value for value in dict.fromkeys(used) if value not in made]


def _results(piece: Piece | SizeRun) -> list[Value]:
    """List what nodes outside use of a piece, also those in bodies, or its graph returns."""
    members = set(piece.nodes)
    return [
        value
        for node in piece.nodes
        for value in node.outputs
        if value.is_graph_output or any(user not in members for user, _ in value.uses)
    ]


def _opened(kind: TensorType, *, keep_lengths: bool) -> TensorType:
    """Leave lengths open that runs decide: symbols, and in a body numbers, which states outgrow."""
    if kind.shape is None:
        return kind
    dims: list[Dim] = [dim if keep_lengths and isinstance(dim, int) else None for dim in kind.shape]
    return TensorType(kind.dtype, tuple(dims))
