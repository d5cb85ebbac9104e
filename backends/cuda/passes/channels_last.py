"""Maps with channels last around convolutions, as cuDNN computes them fastest.

``layout_choice`` says which nodes are turned. Each becomes a patch, in order: the node works on
maps with channels last, and a Transpose behind each result gives the others what they had. A later
node that is turned, too, reads what is before that Transpose, which is then not needed. What is not
turned yet is turned by ``ToChannelsLast`` at its first turned reader. That one adds channels of
zeros before a convolution whose channels are no multiple of four, and it takes in the elementwise
work on what it turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.rewriting.matching import rank_of, static_shape
from ...accelerator.elementwise.fused_step import FUSED_ELEMENTWISE, FusedStep, parse_steps, step_of
from ..domain import CUDA_DOMAIN
from .channels_last_rules import TurnedNode, is_fused, rank_read
from .layout_choice import choose_channels_last
from .layouts import (
    is_free,
    order_of,
    to_first,
    to_last,
    turned_array,
    turned_type,
)

__all__ = ["TO_CHANNELS_LAST", "ChannelsLast"]

TO_CHANNELS_LAST = "ToChannelsLast"
"""Turns its first input, or what its ``steps`` make, to a map with ``channels`` channels, last."""

_CHANNEL_STEP = 4
"""With this number of channels, or a multiple, cuDNN needs no workspace for a first convolution."""


class ChannelsLast(Pass):
    """Turn convolutions and what can go along with them to channels last; for cuDNN only."""

    name = "channels last"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        chosen = choose_channels_last(graph)
        work = _Turning(graph)
        for node in list(graph.nodes) if chosen else ():
            if node.graph is not graph:
                continue
            if node in chosen:
                yield work.turned(node, chosen[node])
            else:
                yield from work.cancelled(node)


class _Turning:
    """The rewrite of one graph, node by node in their order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Value, int], Value] = {}
        """Maps with channels last that are there, by what they are made of, and their channels."""

    def turned(self, node: Node, rule: TurnedNode) -> GraphPatch:
        """Write a node for channels last."""
        patch = GraphPatch(f"channels last for {node.op_type} {node.name!r}")
        inputs = [
            None if value is None else self._input(patch, value, node, rule, index)
            for index, value in enumerate(node.inputs)
        ]
        for form in rule.inputs[len(inputs) :]:
            assert isinstance(form, np.ndarray)
            inputs.append(_constant(patch, f"{node.name}_axes", form))
        outputs, backs = [], []
        for old in node.outputs:
            if rule.keeps_output:
                outputs.append(Value(old.name, old.type))
                patch.replace(old, outputs[-1])
                continue
            made, given = Value(f"{old.name}_last", turned_type(old)), Value(old.name, old.type)
            outputs.append(made)
            order = {"perm": list(to_first(rank_of(old) or 0))}
            backs.append(Node("Transpose", (made,), (given,), order, name=f"{node.name}_first"))
            patch.replace(old, given)
        copy = Node(
            rule.op_type, inputs, outputs, rule.attributes, name=node.name, domain=rule.domain
        )
        for item in (copy, *backs):
            patch.add(item, before=node, stands_for=[node])
        return patch.remove(node)

    def cancelled(self, node: Node) -> Iterator[GraphPatch]:
        """Replace a Transpose of the model whose result is there already; else note it."""
        (source, *_), result = node.inputs or (None,), node.outputs[0]
        rank = rank_of(source) or 0
        if source is None or order_of(node) != to_last(rank):
            return
        found = self._find(source, _channels_of(source))
        if found is None:
            self._made[source, _channels_of(source)] = result
        elif not result.is_graph_output or not (found.is_graph_output or found.producer is None):
            patch = GraphPatch(f"cancel Transpose {node.name!r}").remove(node)
            yield patch.replace(result, found)

    def _input(
        self, patch: GraphPatch, value: Value, node: Node, rule: TurnedNode, index: int
    ) -> Value:
        form = rule.inputs[index]
        if isinstance(form, np.ndarray):
            return _constant(patch, value.name, form)
        if form == "as it is":
            return value
        rank = rank_read(node, index)
        if value.constant is not None:
            turned = turned_array(value.constant, rank)
            return value if turned is value.constant else _constant(patch, value.name, turned)
        if rank_of(value) != rank:
            return self._widened(patch, value, node, rank)
        is_first = rule.op_type == "Conv" and index == 0
        return self._turned_map(patch, value, node, _padded_channels(value, node, is_first))

    def _find(self, value: Value, channels: int) -> Value | None:
        """Find a map with channels last that is there."""
        maker = value.producer
        if maker is not None and maker.graph is self._graph and _is_turned_back(maker):
            return maker.inputs[0]
        return self._made.get((value, channels))

    def _turned_map(self, patch: GraphPatch, value: Value, node: Node, channels: int) -> Value:
        found = self._find(value, _channels_of(value)) or self._find(value, channels)
        if found is not None:
            return found
        shape = static_shape(value)
        assert shape is not None
        kind = turned_type(value)
        assert kind.shape is not None
        made = Value(f"{value.name}_last", TensorType(kind.dtype, (*kind.shape[:-1], channels)))
        self._made[value, channels] = made
        maker = value.producer
        if is_free(shape, to_last(len(shape))) and channels == _channels_of(value):
            order = {"perm": list(to_last(len(shape)))}
            turn = Node("Transpose", (value,), (made,), order, name=f"{node.name}_last")
            patch.add(turn, before=node, stands_for=[node])
        elif maker is not None and self._can_take_in(value, maker):
            steps, inputs = _steps_of(maker)
            attributes = {"channels": channels, "shape": list(shape), "steps": steps}
            patch.add(_to_last(inputs, made, attributes, maker.name), maker, [maker])
            patch.remove(maker)
        else:
            attributes = {"channels": channels, "shape": list(shape), "steps": []}
            turn = _to_last([value], made, attributes, f"{node.name}_last")
            patch.add(turn, before=node, stands_for=[node])
        return made

    def _can_take_in(self, value: Value, maker: Node) -> bool:
        """True if a value is made by elementwise work, for one node alone."""
        is_alone = len(value.uses) == 1 and not value.is_graph_output
        return is_alone and maker.graph is self._graph and is_fused(maker)

    def _widened(self, patch: GraphPatch, value: Value, node: Node, rank: int) -> Value:
        """See an operand of fewer axes as a map, with channels last."""
        shape = static_shape(value)
        assert shape is not None
        wide = (1,) * (rank - len(shape)) + shape
        kind = value.type
        assert isinstance(kind, TensorType)
        last = tuple(wide[axis] for axis in to_last(rank))
        seen = last if is_free(wide, to_last(rank)) else wide
        made = Value(f"{value.name}_wide", TensorType(kind.dtype, seen))
        target = _constant(patch, f"{value.name}_shape", np.array(seen, np.int64))
        view = Node("Reshape", (value, target), (made,), name=f"{node.name}_wide")
        patch.add(view, before=node, stands_for=[node])
        if seen == last:
            return made
        turned = Value(f"{value.name}_last", TensorType(kind.dtype, last))
        order = {"perm": list(to_last(rank))}
        turn = Node("Transpose", (made,), (turned,), order, name=f"{node.name}_last")
        patch.add(turn, before=node, stands_for=[node])
        return turned


def _is_turned_back(node: Node) -> bool:
    """True for a Transpose that brings the channels of a map to axis 1."""
    return order_of(node) == to_first(rank_of(node.inputs[0]) or 0)


def _channels_of(value: Value) -> int:
    shape = static_shape(value)
    assert shape is not None
    return shape[1]


def _padded_channels(value: Value, node: Node, is_first: bool) -> int:
    """Return how many channels a map is to have for a node that reads it."""
    channels = _channels_of(value)
    weights = node.inputs[1] if is_first else None
    if weights is None or not weights.is_constant or int(node.attributes.get("group", 1)) != 1:
        return channels
    return -(-channels // _CHANNEL_STEP) * _CHANNEL_STEP


def _steps_of(node: Node) -> tuple[list[str], list[Value | None]]:
    """Write an elementwise node, or a fused group, as steps on the inputs."""
    if node.op_type == FUSED_ELEMENTWISE:
        return [str(step) for step in parse_steps(node)], list(node.inputs)
    names = {value: f"i{index}" for index, value in enumerate(node.inputs) if value is not None}
    step: FusedStep = step_of(node, names.__getitem__)
    return [str(step)], list(node.inputs)


def _to_last(
    inputs: list[Value | None], made: Value, attributes: dict[str, object], name: str
) -> Node:
    return Node(TO_CHANNELS_LAST, inputs, (made,), attributes, name=name, domain=CUDA_DOMAIN)


def _constant(patch: GraphPatch, name: str, array: np.ndarray) -> Value:
    made = Value(f"{name}_last", TensorType(DType.of(array.dtype), array.shape), array)
    patch.add_constant(made)
    return made
