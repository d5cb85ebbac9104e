"""Unique names for all nodes, and where each node of the converted model comes from.

Queries, profiles and affinities speak of the file's nodes, but onnx's inliner and converter rename,
replace and insert nodes and drop their metadata. So every node gets a name that is unique in the
whole model, and :class:`Origins` remembers by that name what the node stood for. After each
rewrite, a node without a known name is recognised by what it makes: the value names of the file
survive. One that makes a new value serves the node that its value goes to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import onnx

from ....errors import ModelError
from ...onnx_writer.model import FUSED_FROM_KEY
from ..origins import Origin, Origins
from .structure import body_protos

__all__ = ["Snapshot", "name_nodes", "restore_names"]


@dataclass
class Snapshot:
    """Which node makes which value in one graph, by names, and in the bodies of its nodes."""

    makers: dict[str, str] = field(default_factory=dict)
    bodies: dict[tuple[str, str], Snapshot] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> Snapshot:
        """Take it of a graph in which all nodes have names."""
        snapshot = cls()
        for node in graph.node:
            snapshot.makers.update(dict.fromkeys(filter(None, node.output), node.name))
            for attribute, body in body_protos(node):
                snapshot.bodies[node.name, attribute] = cls.of(body)
        return snapshot


def name_nodes(
    nodes: Sequence[onnx.NodeProto],
    origins: Origins,
    prefix: str = "",
    fallback: str | None = None,
    inherited: Origin | None = None,
) -> None:
    """Give every node a name that no other node of the model has, and note its origin.

    A name of the file, behind the prefix, is kept by the first node that has it, outer graphs
    before bodies. Others are called after their operator, ``Conv_0``, and in a body after its
    owner: ``If_2/then_branch/Add_0``; the fallback is that prefix. Nodes of a function stand for
    the node that calls it, whose origin they inherit. Their metadata moves to the origins.
    """
    fallback = prefix if fallback is None else fallback
    kept = [bool(node.name) and origins.claim(prefix + node.name) for node in nodes]
    for node, is_kept in zip(nodes, kept, strict=True):
        if is_kept:
            name = prefix + node.name
        else:
            wanted = fallback + (node.name or node.op_type)
            name = origins.claim_like(wanted, always_number=not node.name)
        node.name = name
        origins[name] = _origin(node, inherited)
        del node.metadata_props[:]
    for node in nodes:
        for attribute, body in body_protos(node):
            name_nodes(body.node, origins, prefix, f"{node.name}/{attribute}/", inherited)


def _origin(node: onnx.NodeProto, inherited: Origin | None) -> Origin:
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    saved = metadata.pop(FUSED_FROM_KEY, None)
    if inherited is not None:
        return Origin(inherited.fused_from, {**inherited.metadata, **metadata})
    return Origin((node.name,) if saved is None else _saved_names(saved, node.name), metadata)


def _saved_names(text: str, node: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"node {node!r} has metadata {FUSED_FROM_KEY!r} that is no list of names")
    return tuple(names)


def restore_names(
    graph: onnx.GraphProto, snapshot: Snapshot, origins: Origins, enclosing: str | None = None
) -> None:
    """Name every node of a rewritten graph, and note the origin of new ones.

    snapshot: of the same graph before the rewrite. An inserted node is called after the node that
    it serves, ``softmax_1/Shape``, and shares its origin; the node around a body answers for what
    serves none. A node that lost its name gets it back. If the rewrite merged a node into another
    one, that one stands for both.
    """
    owners = _owners(graph.node, snapshot, origins)
    present = {node.name for node in graph.node if node.name in origins}
    for node, owner in zip(graph.node, owners, strict=True):
        makes_its_output = any(snapshot.makers.get(name) == owner for name in node.output)
        if owner is not None and owner not in present and makes_its_output:
            node.name = owner
            present.add(owner)
    for node, owner in zip(graph.node, owners, strict=True):
        owner = owner or enclosing
        if node.name != owner:
            name = origins.claim_like(f"{owner}/{node.op_type}" if owner else node.op_type)
            origins[name] = origins[owner] if owner else Origin((), {})
            node.name = name
        _note_merged(node, snapshot, origins, present)
        for attribute, body in body_protos(node):
            inner = snapshot.bodies.get((node.name, attribute), Snapshot())
            restore_names(body, inner, origins, node.name)


def _note_merged(
    node: onnx.NodeProto, snapshot: Snapshot, origins: Origins, present: Set[str]
) -> None:
    """Make a node stand for those that made its outputs before the rewrite and are gone."""
    makers = dict.fromkeys(snapshot.makers[name] for name in node.output if name in snapshot.makers)
    for lost in makers:
        if lost not in present:
            own = origins[node.name]
            both = dict.fromkeys(own.fused_from + origins[lost].fused_from)
            origins[node.name] = Origin(tuple(both), own.metadata)


def _owners(
    nodes: Sequence[onnx.NodeProto], snapshot: Snapshot, origins: Origins
) -> list[str | None]:
    """Return for each node which known one it is, replaces or serves; None: none at all.

    A node serves the one that it makes an output of; else the one that its values go to; else the
    one that its values come from.
    """
    owners: list[str | None] = []
    seen: set[str] = set()
    for node in nodes:
        is_itself = node.name in origins and node.name not in seen
        made = (snapshot.makers[name] for name in node.output if name in snapshot.makers)
        owners.append(node.name if is_itself else next(made, None))
        seen.add(node.name)
    served: dict[str, str] = {}
    for index in reversed(range(len(nodes))):
        _settle(owners, index, nodes[index].output, nodes[index].input, served)
    made_by: dict[str, str] = {}
    for index, node in enumerate(nodes):
        _settle(owners, index, node.input, node.output, made_by)
    return owners


def _settle(
    owners: list[str | None],
    index: int,
    asked: Iterable[str],
    told: Iterable[str],
    known: dict[str, str],
) -> None:
    """Find the owner of a node by the values on one side, and note it for those on the other."""
    owner = owners[index] or next((known[name] for name in asked if name in known), None)
    owners[index] = owner
    if owner is not None:
        known.update((name, owner) for name in told if name)
