"""Which node goes to which device, and why: a pure decision.

A user names nodes of the file. A node of the model that was read may stand for several of them, or
for a part of one (``origins``); it goes where they are asked to go. A node that the user does not
place goes to the first device of the list that can run it, also if the user placed other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ....errors import DeviceError, PropertyError, UnsupportedOpError, nearest
from ....runtime.passes import Support, SupportMap

__all__ = ["NodeOrigin", "Placement", "Wish", "place_nodes", "refuse", "wishes_of"]

LISTED_NODES = 10
"""How many nodes an error names in full; a model that fits nowhere has thousands."""


class NodeOrigin(NamedTuple):
    """A node of the model; ``origins`` are the nodes of the file that it stands for."""

    name: str
    op: str
    origins: tuple[str, ...]
    affinity: str | None = None


class Wish(NamedTuple):
    """A device that the user asks for, and how."""

    device: str
    how: str


class Placement(NamedTuple):
    """The device of a node, and why it is there."""

    device: str
    reason: str


def wishes_of(
    nodes: Sequence[NodeOrigin],
    given: Mapping[str, str],
    devices: Sequence[str],
    inner_nodes: Iterable[str] = (),
) -> dict[str, Wish]:
    """Return for each node, by name, what the user asks for it; the others are left out.

    given: the property AFFINITY, by names of nodes or of nodes of the file; it goes before the
    affinity that is saved with a node. inner_nodes: those in bodies of control flow, which go where
    the node around them goes. Raises PropertyError for a name that is none and for nodes of the
    file that one node stands for and that are to be apart; DeviceError for a device that is not
    in the list.
    """
    _check_names(nodes, given, set(inner_nodes))
    wishes: dict[str, Wish] = {}
    for node in nodes:
        asked = {name: given[name] for name in (node.name, *node.origins) if name in given}
        if node.name in asked:
            asked = {node.name: asked[node.name]}
        if len(set(asked.values())) > 1:
            raise PropertyError(
                f"HETERO: node {node.name!r} stands for nodes of the file that AFFINITY wants on "
                f"different devices: {asked}; give them one device",
                "AFFINITY",
                "HETERO",
                value=asked,
            )
        if asked:
            wish = Wish(next(iter(asked.values())), "asked for by AFFINITY")
        elif node.affinity is not None:
            wish = Wish(node.affinity, "asked for by the node's affinity")
        else:
            continue
        if wish.device not in devices:
            raise DeviceError(
                f"node {node.name!r} has the affinity {wish.device!r} ({wish.how}), which is not "
                f"among the devices of this network, {list(devices)}{nearest(wish.device, devices)}"
                f"; add it to the list, or ask for one of them",
                node=node.name,
                device=wish.device,
            )
        wishes[node.name] = wish
    return wishes


def place_nodes(
    nodes: Sequence[NodeOrigin],
    wishes: Mapping[str, Wish],
    answers: Mapping[str, SupportMap],
) -> tuple[dict[str, Placement], dict[str, dict[str, str]]]:
    """Place every node that some device takes; for the others, give each device's reason.

    answers: by device, in the order of priority, by names of nodes of the file. Returns node ->
    placement, and node -> {device: reason}, by name; every node is in one of the two.
    """
    placed: dict[str, Placement] = {}
    refused: dict[str, dict[str, str]] = {}
    for node in nodes:
        wish = wishes.get(node.name)
        asked = list(answers) if wish is None else [wish.device]
        reasons: dict[str, str] = {}
        for device in asked:
            answer = _answer(node, answers[device])
            if answer.supported:
                reason = _why(reasons, bool(wishes)) if wish is None else wish.how
                placed[node.name] = Placement(device, reason)
                break
            reasons[device] = answer.reason + (f" ({wish.how})" if wish is not None else "")
        else:
            refused[node.name] = reasons
    return placed, refused


def refuse(
    nodes: Sequence[NodeOrigin],
    refused: Mapping[str, Mapping[str, str]],
    network: str,
    way_out: str,
) -> UnsupportedOpError:
    """Make the one error for all nodes that no device takes; ``refused`` has at least one."""
    ops = {node.name: node.op for node in nodes}
    first, *others = refused
    reason = _listed(refused[first])
    for name in others[: LISTED_NODES - 1]:
        reason += f"; nor {ops[name]} (node {name!r}): {_listed(refused[name])}"
    if len(refused) > LISTED_NODES:
        reason += f"; nor {len(refused) - LISTED_NODES} more nodes"
    return UnsupportedOpError(first, ops[first], network, reason, way_out)


def _check_names(
    nodes: Iterable[NodeOrigin], given: Mapping[str, str], inner_nodes: set[str]
) -> None:
    known = {name for node in nodes for name in (node.name, *node.origins)}
    for name in given:
        if name in known:
            continue
        hint = nearest(name, known) or "; only compute nodes have one, constants follow their users"
        if name in inner_nodes:
            hint = "; it is in the body of a node, so give the affinity to the node around it"
        raise PropertyError(
            f"HETERO: AFFINITY names no node {name!r}{hint}", "AFFINITY", "HETERO", value=name
        )


def _answer(node: NodeOrigin, answers: SupportMap) -> Support:
    missing = Support(False, "the device gave no answer for it")
    for name in node.origins:
        answer = answers.get(name, missing)
        if not answer.supported:
            return answer
    return Support(True)


def _why(reasons: Mapping[str, str], are_others_asked_for: bool) -> str:
    why = "first device in the list that supports it"
    if are_others_asked_for:
        why = f"no affinity given; {why}"
    refusals = "; ".join(f"refused by {device}: {reason}" for device, reason in reasons.items())
    return f"{why} ({refusals})" if reasons else why


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{device}: {reason}" for device, reason in reasons.items())
