"""The graph of a plain model, of the newest opset and with all types inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ....errors import GraphError, ModelError
from ...graph import Attribute, DType, Graph, Model, Node, TensorType, Value
from ...type_inference import ContradictionError, find_rule, infer_graph_types
from ...type_inference.collected_types import promise_to_bodies
from ...type_inference.declared_lengths import with_declared_symbols
from ...type_inference.promised_types import keep_promises
from ..data.constants import constant_array
from ..origins import Origins
from ..signatures.attribute_values import find_wrong_value
from ..signatures.signature import find_mistake
from ..signatures.signature_table import find_signature
from .plain_fields import NotPlainError
from .plain_opsets import NEWEST_IR_VERSION, NEWEST_OPSET, OLDEST_OPSET, needs_upgrade, upgrade
from .plain_proto import PlainGraph, PlainModel, PlainNode

__all__ = ["build_model", "opset_versions"]

Array = np.ndarray[Any, Any]

_KNOWN_BY_US = "aioinfer."
"""What keys begin with that are not a user's."""

_UNREAD = Value("")
"""Stands for all constants that nothing reads, whose names are taken nevertheless."""

_KINDS = {int: "int", float: "float", str: "string", np.ndarray: "tensor"}
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators with bodies of which we infer the types; those of others are for onnx."""


def build_model(plain: PlainModel, path: Path | None) -> Model:
    """Make the model of what was decoded. Raises NotPlainError for what only onnx can judge.

    A node that contradicts itself is none of that, but a ContradictionError.
    """
    opsets = opset_versions(plain.opsets)
    try:
        promised: dict[Value, TensorType | None] = {}
        graph = _Builder(plain.graph, opsets[""], Origins(), promised).graph()
        _infer(graph, plain.graph)
        keep_promises(graph, promised)
        declared = (known for _, known in plain.graph.outputs)
        promise_to_bodies(zip(graph.outputs, declared, strict=True))
    except ContradictionError:
        raise
    except (ModelError, GraphError) as error:
        raise NotPlainError(str(error)) from error
    return Model(
        graph,
        {**opsets, "": NEWEST_OPSET},
        ir_version=NEWEST_IR_VERSION,
        producer=" ".join(filter(None, plain.producer)),
        metadata=plain.metadata,
        path=path,
    )


def opset_versions(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Read versions by domain; raises NotPlainError for those that only onnx deals with."""
    opsets: dict[str, int] = {}
    for name, version in pairs:
        domain = "" if name == "ai.onnx" else name
        if opsets.setdefault(domain, version) != version or version < 1:
            raise NotPlainError("an opset has two versions")
    if not OLDEST_OPSET <= opsets.get("", 0) <= NEWEST_OPSET or "ai.onnx.ml" in opsets:
        raise NotPlainError("its opset is for the converter")
    return opsets


class _Builder:
    """One graph of a model while it is built.

    What ``check_graph`` asks of a graph holds by construction: names are unique, and nothing is
    used before it is made. ``prefix`` stands before the names that nodes of a body are given, and
    ``outer`` are the values of the graphs around it. ``promised`` takes what the file says of what
    bodies give.
    """

    def __init__(
        self,
        plain: PlainGraph,
        opset: int,
        origins: Origins,
        promised: dict[Value, TensorType | None],
        prefix: str = "",
        outer: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        self._plain, self._opset, self._origins = plain, opset, origins
        self._promised, self._prefix = promised, prefix
        self._graph = Graph(plain.name)
        self._scope = dict(outer)
        self._names = {name for node in plain.nodes for name in node.outputs} | plain.reads
        self._fitting: set[tuple[str, int, int]] = set()
        """Forms of nodes without attributes that fit their operators."""
        kept = [bool(node.name) and origins.claim(node.name) for node in plain.nodes]
        self._node_names = [
            node.name if is_kept else self._claim(node)
            for node, is_kept in zip(plain.nodes, kept, strict=True)
        ]

    def _claim(self, node: PlainNode) -> str:
        wanted = self._prefix + (node.name or node.op_type)
        return self._origins.claim_like(wanted, always_number=not node.name)

    def graph(self) -> Graph:
        constants = set()
        for name, array in self._plain.initializers:
            constants.add(name)
            if array is None:
                self._define(_UNREAD, name)
            else:
                self._add_constant(name, array)
        for name, known in self._plain.inputs:
            if name not in constants:
                self._graph.inputs.append(self._define(Value(name, known)))
        for node, name in zip(self._plain.nodes, self._node_names, strict=True):
            self._add_node(node, name)
        names = [name for name, _ in self._plain.outputs]
        if len(set(names)) < len(names):
            raise NotPlainError("an output is there twice")
        self._graph.outputs = [self._value(name) for name in names]
        for name, known in (*self._plain.inputs, *self._plain.outputs):
            self._promised[self._scope[name]] = known
        return self._graph

    def _define(self, value: Value, name: str = "") -> Value:
        name = name or value.name
        if not name or name in self._scope:
            raise NotPlainError(f"value {name!r} is defined twice, or has no name")
        self._scope[name] = value
        return value

    def _value(self, name: str) -> Value:
        if name not in self._scope:
            raise NotPlainError(f"{name!r} is used before it is made, or nothing makes it")
        return self._scope[name]

    def _add_constant(self, name: str, array: Array) -> None:
        known = TensorType(DType.of(array.dtype), array.shape)
        self._graph.add_initializer(self._define(Value(name, known, array)))

    def _add_node(self, plain: PlainNode, name: str) -> None:
        if plain.domain not in ("", "ai.onnx"):
            raise NotPlainError(f"{plain.op_type} is of domain {plain.domain}")
        if plain.metadata and any(key.startswith(_KNOWN_BY_US) for key in plain.metadata):
            raise NotPlainError("it was written by aioinfer, with the names of older nodes")
        if plain.bodies and plain.op_type not in _WITH_BODIES:
            raise NotPlainError(f"the bodies of {plain.op_type} are for onnx")
        while len(plain.outputs) > 1 and not plain.outputs[-1] and not plain.bodies:
            plain.outputs.pop()
        form = (plain.op_type, len(plain.inputs), len(plain.outputs))
        is_simple = not plain.attributes and not plain.bodies and all(plain.inputs)
        if not is_simple or form not in self._fitting:
            _check_form(plain, self._opset)
            if is_simple:
                self._fitting.add(form)
        if plain.op_type == "Constant":
            if len(plain.outputs) != 1 or plain.inputs:
                raise NotPlainError(f"Constant {name!r} has inputs, or not one output")
            self._add_constant(plain.outputs[0], constant_array(name, plain.attributes))
            return
        if needs_upgrade(plain.op_type, self._opset):
            upgrade(plain, self._opset, partial(self._add_made_constant, name))
        attributes = plain.attributes
        if plain.bodies:
            attributes = attributes | self._bodies(plain, name)
        node = Node(
            plain.op_type,
            [self._value(used) if used else None for used in plain.inputs],
            [
                self._define(Value(made or f"{name}/unused_{index}"))
                for index, made in enumerate(plain.outputs)
            ],
            attributes,
            name=name,
            metadata=plain.metadata,
        )
        if not plain.bodies and find_rule(node) is None:
            raise NotPlainError(f"the types of {plain.op_type} are for onnx to infer")
        self._graph.append(node)

    def _bodies(self, plain: PlainNode, name: str) -> dict[str, Attribute]:
        """Build the bodies of a node, which may use all that is made before it."""
        built: dict[str, Attribute] = {}
        for key, body in plain.bodies.items():
            inner = f"{name}/{key}/"
            builder = _Builder(body, self._opset, self._origins, self._promised, inner, self._scope)
            built[key] = builder.graph()
        return built

    def _add_made_constant(self, node: str, array: Array) -> str:
        """Take in a constant that the file does not have, and return its name."""
        made = f"{node}/constant"
        while made in self._names or made in self._scope:
            made += "_"
        self._add_constant(made, array)
        return made


def _check_form(node: PlainNode, opset: int) -> None:
    """Leave what does not have its operator's form to onnx, which says what is wrong."""
    signature = find_signature(node.op_type, opset)
    if signature is not None:
        kinds = {name: _kind(content) for name, content in node.attributes.items()}
        kinds.update(dict.fromkeys(node.bodies, "graph"))
        mistake = find_mistake(signature, node.inputs, node.outputs, kinds)
        mistake = mistake or find_wrong_value(node.op_type, node.attributes.items())
        if mistake is not None:
            raise NotPlainError(f"node {node.name!r} ({node.op_type}) {mistake}")


def _kind(content: Attribute) -> str | None:
    """Return the kind of an attribute; None for an empty list, which may be one of anything."""
    if isinstance(content, list):
        return f"{_KINDS[type(content[0])]}s" if content else None
    return _KINDS[type(content)]


def _infer(graph: Graph, plain: PlainGraph) -> None:
    """Infer all types; the file's word counts only for the names of lengths that stay open."""
    if not infer_graph_types(graph, leaves_lengths=True):
        raise NotPlainError("some types are for onnx to infer")
    declared: Mapping[str, TensorType | None] = dict(plain.outputs)
    for value in graph.outputs:
        if value.producer is not None:
            value.type = with_declared_symbols(value.type, declared[value.name])
