"""The graph of a plain model, of the newest opset and with all types inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import GraphError, ModelError
from ...graph import Attribute, DType, Graph, Model, Node, TensorType, Value
from ...type_inference import ContradictionError, find_rule, infer_graph_types
from ...type_inference.declared_lengths import with_declared_symbols
from ..data.constants import constant_array
from ..origins import Origins
from ..signatures.attribute_values import find_wrong_value
from ..signatures.signature import find_mistake
from ..signatures.signature_table import find_signature
from .plain_opsets import NEWEST_IR_VERSION, NEWEST_OPSET, OLDEST_OPSET, needs_upgrade, upgrade
from .plain_proto import NotPlainError, PlainGraph, PlainModel, PlainNode

__all__ = ["build_model", "opset_versions"]

Array = np.ndarray[Any, Any]

_KNOWN_BY_US = "aioinfer."
"""What keys begin with that are not a user's."""

_UNREAD = Value("")
"""Stands for all constants that nothing reads, whose names are taken nevertheless."""

_KINDS = {int: "int", float: "float", str: "string", np.ndarray: "tensor"}


def build_model(plain: PlainModel, path: Path | None) -> Model:
    """Make the model of what was decoded. Raises NotPlainError for what only onnx can judge.

    A node that contradicts itself is none of that, but a ContradictionError.
    """
    opsets = opset_versions(plain.opsets)
    try:
        graph = _Builder(plain.graph, opsets[""]).graph()
        _infer(graph, plain.graph)
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
    """The graph of one model while it is built.

    What ``check_graph`` asks of a graph holds by construction: names are unique, and nothing is
    used before it is made.
    """

    def __init__(self, plain: PlainGraph, opset: int) -> None:
        self._plain, self._opset = plain, opset
        self._graph = Graph(plain.name)
        self._scope: dict[str, Value] = {}
        self._origins = Origins()
        self._names = {name for node in plain.nodes for name in node.outputs}
        self._fitting: set[tuple[str, int, int]] = set()
        """Forms of nodes without attributes that fit their operators."""

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
        kept = [bool(node.name) and self._origins.claim(node.name) for node in self._plain.nodes]
        for node, is_kept in zip(self._plain.nodes, kept, strict=True):
            self._add_node(node, is_kept)
        names = [name for name, _ in self._plain.outputs]
        if len(set(names)) < len(names):
            raise NotPlainError("an output is there twice")
        self._graph.outputs = [self._value(name) for name in names]
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

    def _add_node(self, plain: PlainNode, is_name_kept: bool) -> None:
        if plain.domain not in ("", "ai.onnx"):
            raise NotPlainError(f"{plain.op_type} is of domain {plain.domain}")
        if plain.metadata and any(key.startswith(_KNOWN_BY_US) for key in plain.metadata):
            raise NotPlainError("it was written by aioinfer, with the names of older nodes")
        name = plain.name
        if not is_name_kept:
            wanted = name or plain.op_type
            name = self._origins.claim_like(wanted, always_number=not name)
        while len(plain.outputs) > 1 and not plain.outputs[-1]:
            plain.outputs.pop()
        form = (plain.op_type, len(plain.inputs), len(plain.outputs))
        is_simple = not plain.attributes and all(plain.inputs)
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
        node = Node(
            plain.op_type,
            [self._value(used) if used else None for used in plain.inputs],
            [
                self._define(Value(made or f"{name}/unused_{index}"))
                for index, made in enumerate(plain.outputs)
            ],
            plain.attributes,
            name=name,
            metadata=plain.metadata,
        )
        if find_rule(node) is None:
            raise NotPlainError(f"the types of {plain.op_type} are for onnx to infer")
        self._graph.append(node)

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
    if not infer_graph_types(graph):
        raise NotPlainError("some types are for onnx to infer")
    declared: Mapping[str, TensorType | None] = dict(plain.outputs)
    for value in graph.outputs:
        if value.producer is not None:
            value.type = with_declared_symbols(value.type, declared[value.name])
