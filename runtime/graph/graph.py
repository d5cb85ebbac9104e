"""Graph, Node and Value: the model between the file and the devices.

A :class:`Value` knows its producer and its uses. A :class:`Node` refers to its values directly,
also to those of an outer graph: a control-flow body captures by reference, without copies or names.
Every edit goes through the methods here, which keep producers and uses consistent; ``check.py``
verifies it. Nodes stand in a linked list in topological order: inserting and removing cost O(1),
and an iteration survives the removal of the node it stands on. Not thread-safe; a network owns its
copy.

No protobuf here: reading belongs to ``onnx_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GraphError
from .shape import TensorType, ValueType
from .sym_array import integers_in

__all__ = ["Attribute", "Graph", "Node", "Value"]

Attribute = Any
"""int, float, str, bytes, ndarray, Graph, ValueType, or a list of one of them."""

TypeRule = Callable[["Node"], Sequence[TensorType | None]]
"""Gives the types of a node's outputs, as far as it knows, by the types of its inputs."""


class Value:
    """What a node makes or takes: a tensor, a sequence or an optional.

    ``constant`` is its content if that is known: an array that is shared and never written.
    """

    __slots__ = (
        "_graph_output_count",
        "constant",
        "name",
        "output_index",
        "producer",
        "type",
        "uses",
    )

    def __init__(
        self, name: str, type: ValueType | None = None, constant: np.ndarray | None = None
    ) -> None:
        self.name = name
        self.type = type
        self.constant = constant
        self.producer: Node | None = None
        self.output_index = 0
        self.uses: dict[tuple[Node, int], None] = {}
        """(node, input index) in the order in which the uses were made."""
        self._graph_output_count = 0

    @property
    def is_graph_output(self) -> bool:
        """True if a graph (also a control-flow body) returns it."""
        return self._graph_output_count > 0

    @property
    def is_constant(self) -> bool:
        """True if its content is known before any input is."""
        return self.constant is not None

    @property
    def consumers(self) -> list[Node]:
        """The nodes that use it as a direct input, each once, in order of use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"<Value {self.name!r} {self.type or '?'}>"


class Node:
    """One operator of the graph.

    ``inputs`` may hold None for an optional input that is not given. ``fused_from`` are the names
    of the nodes of the file that it stands for; ``metadata`` is text that is saved with the model.
    """

    __slots__ = (
        "_next",
        "_previous",
        "attributes",
        "domain",
        "fused_from",
        "graph",
        "inputs",
        "metadata",
        "name",
        "op_type",
        "outputs",
        "type_rule",
        "user_kernel",
    )

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        name: str,
        domain: str = "",
        fused_from: Iterable[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.name = name
        self.inputs: tuple[Value | None, ...] = tuple(inputs)
        self.outputs: tuple[Value, ...] = tuple(outputs)
        self.attributes: dict[str, Attribute] = dict(attributes or {})
        self.fused_from: tuple[str, ...] = tuple([name] if fused_from is None else fused_from)
        self.metadata: dict[str, str] = dict(metadata or {})
        self.type_rule: TypeRule | None = None
        """A user's rule for the types of its outputs, which goes before the operator's own."""
        self.user_kernel: Callable[..., Any] | None = None
        """A user's function that the device is to compute it with."""
        self.graph: Graph | None = None
        self._previous: Node | None = None
        self._next: Node | None = None
        for index, value in enumerate(self.outputs):
            if value.producer is not None:
                raise GraphError(
                    f"value {value.name!r} is made by node {value.producer.name!r} and cannot also "
                    f"be made by node {name!r}; give the new node a value of its own"
                )
            value.producer, value.output_index = self, index
        for index, used in enumerate(self.inputs):
            if used is not None:
                used.uses[self, index] = None

    @property
    def affinity(self) -> str | None:
        """The device that the user wants for it; saved in the file's node metadata."""
        return self.metadata.get("affinity")

    @affinity.setter
    def affinity(self, device: str | None) -> None:
        if device is None:
            self.metadata.pop("affinity", None)
        else:
            self.metadata["affinity"] = device

    @property
    def op(self) -> str:
        """Domain and type as users write it: ``Conv``, ``com.acme::Swirl``."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def input_at(self, index: int) -> Value | None:
        """Return an input; None for an optional one that is not given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def integers_at(self, index: int) -> list[int] | None:
        """Return a constant input of integers, flat; None if it is not given, or not known."""
        value = self.input_at(index)
        return None if value is None or value.constant is None else integers_in(value.constant)

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute that is a text, which files hold as bytes.

        Raises KeyError if it is not there and there is no default.
        """
        found = self.attributes[name] if default is None else self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)

    def bodies(self) -> list[Graph]:
        """List the graphs among its attributes: branches and loop bodies."""
        found: list[Graph] = []
        if not self.attributes:
            return found
        for attribute in self.attributes.values():  # asked of every node, many times
            kind = type(attribute)
            if kind is Graph:
                found.append(attribute)
            elif kind is list and attribute and type(attribute[0]) is Graph:
                found.extend(attribute)
        return found

    def captures(self) -> list[Value]:
        """List the outer values that its bodies use, each once, without its direct inputs."""
        bodies = self.bodies()
        if not bodies:
            return []
        found: dict[Value, None] = {}
        for body in bodies:
            found.update(dict.fromkeys(body.captured_values()))
        return [value for value in found if value not in self.inputs]

    def dependencies(self) -> list[Value]:
        """List all that must be there before it can run: direct inputs, then captured values."""
        direct = dict.fromkeys(value for value in self.inputs if value is not None)
        return [*direct, *self.captures()] if self.attributes else list(direct)

    def replace_input(self, index: int, value: Value | None) -> None:
        """Use another value as one input."""
        old = self.inputs[index]
        if old is not None:
            del old.uses[self, index]
        self.inputs = (*self.inputs[:index], value, *self.inputs[index + 1 :])
        if value is not None:
            value.uses[self, index] = None

    def detach(self) -> None:
        """Take it out of its values' producer and uses; for a node that is in no graph."""
        for index, used in enumerate(self.inputs):
            if used is not None:
                used.uses.pop((self, index), None)
        for value in self.outputs:
            value.producer = None
        for body in self.bodies():
            body.detach()

    def __repr__(self) -> str:
        return f"<Node {self.name!r} {self.op}>"


class Graph:
    """Nodes in topological order, with inputs, outputs and constants.

    ``initializers`` are the named constants that no node makes. A body of a control-flow node is a
    Graph, too; what it uses from outside are the outer graph's own Values.
    """

    def __init__(
        self, name: str, inputs: Iterable[Value] = (), outputs: Iterable[Value] = ()
    ) -> None:
        self.name = name
        self.inputs: list[Value] = list(inputs)
        self._outputs: list[Value] = []
        self.initializers: dict[str, Value] = {}
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0
        self.outputs = list(outputs)

    @property
    def outputs(self) -> list[Value]:
        """What the graph returns, in order; assign a new list to change it."""
        return list(self._outputs)

    @outputs.setter
    def outputs(self, values: Iterable[Value]) -> None:
        for value in self._outputs:
            value._graph_output_count -= 1
        self._outputs = list(values)
        for value in self._outputs:
            value._graph_output_count += 1

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes in topological order; removing the one just given is allowed."""
        node = self._first
        while node is not None:
            following = node._next
            yield node
            node = following if node.graph is not self else node._next

    def __len__(self) -> int:
        return self._count

    def nodes_of(self, op_type: str, domain: str = "") -> list[Node]:
        """List the nodes of one operator, in topological order, as they are now."""
        return [node for node in self.nodes if node.op_type == op_type and node.domain == domain]

    def add_initializer(self, value: Value) -> Value:
        """Take in a named constant; the same name twice is a GraphError."""
        if value.constant is None:
            raise GraphError(f"initializer {value.name!r} of graph {self.name!r} has no content")
        if value.name in self.initializers:
            raise GraphError(
                f"graph {self.name!r} already has an initializer {value.name!r}; choose a new name"
            )
        self.initializers[value.name] = value
        return value

    def append(self, node: Node) -> Node:
        """Put a node at the end."""
        return self._link(node, self._last)

    def insert_before(self, place: Node, node: Node) -> Node:
        """Put a node right before another one of this graph."""
        if place.graph is not self:
            raise GraphError(f"node {place.name!r} is not in graph {self.name!r}")
        return self._link(node, place._previous)

    def _link(self, node: Node, previous: Node | None) -> Node:
        if node.graph is not None:
            raise GraphError(f"node {node.name!r} is already in graph {node.graph.name!r}")
        following = self._first if previous is None else previous._next
        node.graph, node._previous, node._next = self, previous, following
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if following is None:
            self._last = node
        else:
            following._previous = node
        self._count += 1
        return node

    def remove(self, node: Node) -> None:
        """Take a node out for good; raises GraphError while something uses one of its outputs."""
        for value in node.outputs:
            if value.uses or value.is_graph_output:
                user = next((user.name for user, _ in value.uses), f"graph {self.name!r}")
                raise GraphError(
                    f"cannot remove node {node.name!r}: its output {value.name!r} is used by "
                    f"{user!r}; replace the uses first"
                )
        self.unlink(node)
        node.detach()

    def unlink(self, node: Node) -> None:
        """Take a node out of the list and leave its values alone, to link it again elsewhere."""
        if node.graph is not self:
            raise GraphError(f"node {node.name!r} is not in graph {self.name!r}")
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        node.graph = None
        self._count -= 1

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make everything that uses ``old``, outputs of graphs included, use ``new``."""
        for node, index in list(old.uses):
            node.replace_input(index, new)
        self._replace_outputs(old, new)

    def _replace_outputs(self, old: Value, new: Value) -> None:
        """Return another value, here and from the bodies inside, which may return an outer one."""
        if any(value is old for value in self._outputs):
            self.outputs = [new if value is old else value for value in self._outputs]
        if old.is_graph_output:
            for node in self.nodes:
                for body in node.bodies():
                    body._replace_outputs(old, new)

    def captured_values(self) -> list[Value]:
        """List the outer values that nodes of this graph and of bodies inside use, each once."""
        inside: set[Value] = set(self.inputs) | set(self.initializers.values())
        captured: dict[Value, None] = {}
        for node in self.nodes:
            for value in node.dependencies():
                if value not in inside:
                    captured[value] = None
            inside.update(node.outputs)
        for value in self._outputs:
            if value not in inside:
                captured[value] = None
        return list(captured)

    def detach(self) -> None:
        """Take the whole graph out of the uses of outer values; for a body that never runs."""
        for node in list(self.nodes):
            self.unlink(node)
            node.detach()
        self.outputs = []

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} {self._count} nodes>"
