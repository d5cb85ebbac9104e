"""Fold a Pad into the operator that follows it and can pad by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...graph import Graph, Node, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import integers_of, is_standard, only_user, rank_of, scalar_of
from ..rewriting.node_traits import is_unused
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity
from .weight_folding import FOLDED_DTYPES

__all__ = ["PadFolding"]


class PadFolding(Pass):
    """Fold a constant Pad of spatial axes into Conv, AveragePool or MaxPool.

    Conv and an AveragePool that counts its padding pad with zeros, MaxPool with minus infinity; any
    other value stays a Pad, as do negative pads, and a pool's window that would see padding alone.
    """

    name = "pad folding"
    wanted_ops = frozenset({"Pad"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("Pad"):
            user = only_user(node.outputs[0])
            if user is None or user.inputs[0] is not node.outputs[0]:
                continue
            attributes = _attributes(node, user) if have_one_affinity((node, user)) else None
            if attributes is not None:
                yield _patch(node, user, attributes)


def _patch(node: Node, user: Node, attributes: dict[str, Any]) -> GraphPatch:
    old = user.outputs[0]
    result = Value(old.name, old.type)
    padding = Node(
        user.op_type, (node.inputs[0], *user.inputs[1:]), (result,), attributes, name=user.name
    )
    patch = GraphPatch(f"fold Pad {node.name!r} into {user.op} {user.name!r}")
    # Other inputs may be made between the two.
    return patch.add(padding, before=user).replace(old, result).remove(node).remove(user)


def _attributes(node: Node, user: Node) -> dict[str, Any] | None:
    """Return the attributes with which the user pads by itself; None if it cannot."""
    known = None if node.inputs[0] is None else node.inputs[0].type
    rank = _spatial_rank(user)
    pads = None if rank is None else _spatial_pads(node, rank)
    own = None if rank is None else _own_pads(user, rank)
    fill = _fill(node)
    if pads is None or own is None or getattr(known, "dtype", None) not in FOLDED_DTYPES:
        return None
    attributes = {key: item for key, item in user.attributes.items() if key != "auto_pad"}
    attributes["pads"] = [first + second for first, second in zip(pads, own, strict=True)]
    if is_standard(user, "Conv"):
        return attributes if fill == 0 else None
    if not _may_pool(user, attributes["pads"]):
        return None
    if is_standard(user, "MaxPool"):
        return attributes if fill == -math.inf else None
    counts_padding = user.attributes.get("count_include_pad", 0) or not any(own)
    return {**attributes, "count_include_pad": 1} if counts_padding and fill == 0 else None


def _fill(node: Node) -> float | None:
    """Return the number that is padded with; None if it is not known, or none at all."""
    if node.text("mode", "constant") != "constant":
        return None
    value = node.input_at(2)
    return 0.0 if value is None else scalar_of(value)


def _spatial_rank(user: Node) -> int | None:
    if is_standard(user, "AveragePool", "MaxPool"):
        return len(user.attributes["kernel_shape"])
    rank = rank_of(user.inputs[1]) if is_standard(user, "Conv") else None
    return None if rank is None else rank - 2


def _spatial_pads(node: Node, spatial_rank: int) -> list[int] | None:
    """Return the pads of the spatial axes, first all before, then all after."""
    rank = spatial_rank + 2
    pads, axes = integers_of(node.input_at(1)), tuple(range(rank))
    if node.input_at(3) is not None:
        axes = integers_of(node.input_at(3)) or ()
    if any(not -rank <= axis < rank for axis in axes):
        return None
    if pads is None or len(pads) != 2 * len(axes) or min(pads, default=-1) < 0:
        return None
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    is_spatial = not any((*before[:2], *after[:2]))
    return [*before[2:], *after[2:]] if is_spatial else None


def _own_pads(user: Node, spatial_rank: int) -> list[int] | None:
    auto = user.text("auto_pad", "NOTSET")
    if auto == "VALID":
        return [0] * 2 * spatial_rank
    if auto != "NOTSET":
        return None
    return [int(pad) for pad in user.attributes.get("pads", [0] * 2 * spatial_rank)]


def _may_pool(user: Node, pads: list[int]) -> bool:
    kernel = user.attributes["kernel_shape"]
    has_one_output = all(is_unused(value) for value in user.outputs[1:])
    is_seen = all(pad < length for pad, length in zip(pads, [*kernel, *kernel], strict=True))
    return has_one_output and is_seen and not user.attributes.get("ceil_mode", 0)
