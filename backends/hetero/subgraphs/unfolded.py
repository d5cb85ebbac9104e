"""What is computed of constants alone, where the device that uses it wants to see how.

Some devices ask where numbers come from: onnxruntime multiplies in integers what a Dequantize gives
it, and quantises plain numbers anew. So such a node goes to its users, once for each device, and is
folded only for the devices that do not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ....runtime.graph import Graph, Node, copy_node
from ....runtime.passes.rewriting.name_table import NameTable

__all__ = ["follow_users", "is_wanted_by_user"]

UnfoldedOps = Mapping[str, Collection[str]]
"""The operators, by device, that the device does not want to be folded."""


def is_wanted_by_user(unfolded: UnfoldedOps) -> Callable[[Node], bool]:
    """Return a predicate of nodes: the device of a user of the node does not want it folded."""

    def is_wanted(node: Node) -> bool:
        if not any(node.op in ops for ops in unfolded.values()):
            return False
        return any(node.op in unfolded.get(device, ()) for device in _user_devices(node))

    return is_wanted


def follow_users(graph: Graph, unfolded: UnfoldedOps, placed: Collection[str]) -> None:
    """Move nodes that compute such an operator of constants to the devices that use them.

    A node that several devices use becomes one for each. ``placed`` are nodes that stay where they
    are because the user says so. Every node has an affinity, in bodies that of the node around it.
    """
    ops = {op for wanted in unfolded.values() for op in wanted}
    if not ops:
        return
    names = NameTable(graph)
    found: list[Node] = []
    known = set()
    for node in graph.nodes:
        if node.op not in ops or node.name in placed:
            continue
        given = [value for value in node.inputs if value is not None]
        if all(value.is_constant or value.producer in known for value in given):
            found.append(node)
            known.add(node)
    for node in reversed(found):  # users first: they may be among these
        if any(value.is_graph_output for value in node.outputs):
            continue
        devices = _user_devices(node)
        for device in devices[1:]:
            _give_copy(graph, node, device, names)
        if devices:
            node.affinity = devices[0]


def _user_devices(node: Node) -> list[str]:
    users = (user for value in node.outputs for user in value.consumers)
    return list(dict.fromkeys(str(user.affinity) for user in users if user.affinity is not None))


def _give_copy(graph: Graph, node: Node, device: str, names: NameTable) -> None:
    """Compute a node once more, for the users on one device."""
    copied = copy_node(node, {})
    copied.name, copied.affinity = names.claim_node(node.name), device
    for value, fresh in zip(node.outputs, copied.outputs, strict=True):
        fresh.name = names.claim_value(value.name)
        for user, index in list(value.uses):
            if user.affinity == device:
                user.replace_input(index, fresh)
    graph.insert_before(node, copied)
