"""The partition as pictures: what is drawn. ``svg.py`` and ``dot.py`` say how. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..explain import size_text, type_text
from ..partition import Partition, PartitionSubgraph, PlacedNode
from .device_colors import DeviceColor, device_colors
from .svg import Arrow, Box, draw, note, shortened

__all__ = ["affinity_svg", "subgraphs_svg"]

MOST_NODES = 100
"""Above this, nodes are too small to be read, so subgraphs are drawn as boxes only."""
MOST_BOXES = 400
"""Above this, a picture shows nothing that one could find."""

VALUE_COLOR = DeviceColor("#ffffff", "#777777")

Ends = tuple[int, int]
Crossings = Mapping[tuple[str, int], Sequence[Ends]]
"""(value, number of the subgraph that makes it) -> the boxes that it goes from and to."""


def affinity_svg(partition: Partition) -> str:
    """Draw every node in the colour of its device, and what crosses with its size.

    Above 100 nodes it draws whole subgraphs instead.
    """
    if partition.node_count > MOST_NODES:
        return subgraphs_svg(partition)
    owner = {node.name: subgraph for subgraph in partition.subgraphs for node in subgraph.nodes}
    number = {name: index for index, name in enumerate(owner)}
    arrows: list[Arrow] = []
    crossing: dict[tuple[str, int], list[Ends]] = {}
    for edge in partition.edges:
        ends = number[edge.source], number[edge.target]
        source = owner[edge.source].index
        if source == owner[edge.target].index:
            arrows.append(Arrow(*ends))
        else:
            crossing.setdefault((edge.value, source), []).append(ends)
    colors = device_colors(partition.devices)
    boxes = [
        _node_box(node, subgraph, colors[subgraph.device])
        for subgraph in partition.subgraphs
        for node in subgraph.nodes
    ]
    return _drawing(partition, "which device runs which node", boxes, arrows, crossing)


def subgraphs_svg(partition: Partition) -> str:
    """Draw a box for each subgraph, below those that it needs, and what crosses with its size.

    Boxes on one line can run side by side. Up to 100 nodes the boxes list their nodes.
    """
    is_detailed = partition.node_count <= MOST_NODES
    colors = device_colors(partition.devices)
    boxes = [
        _subgraph_box(subgraph, colors[subgraph.device], is_detailed)
        for subgraph in partition.subgraphs
    ]
    crossing: dict[tuple[str, int], list[Ends]] = {}
    for cut in partition.cuts:
        crossing.setdefault((cut.value, cut.source), []).append((cut.source, cut.target))
    return _drawing(partition, "subgraphs, and what crosses between them", boxes, [], crossing)


def _drawing(
    partition: Partition,
    what: str,
    boxes: Sequence[Box],
    arrows: Sequence[Arrow],
    crossing: Crossings,
) -> str:
    """Draw boxes, with a small one on the way of each value that crosses."""
    title = f"{partition.model}: {what}"
    legend = device_colors(partition.devices)
    if len(boxes) + len(crossing) > MOST_BOXES:
        text = f"{len(partition.subgraphs)} subgraphs are too many to draw: see the dot file"
        return note(title, legend, text)
    drawn, lines = list(boxes), list(arrows)
    cuts = {(cut.value, cut.source): cut for cut in partition.cuts}
    for key, ends in crossing.items():
        size, kind = size_text(cuts[key].type, cuts[key].bytes), type_text(cuts[key].type)
        place = len(drawn)
        drawn.append(
            Box("", (f"{shortened(key[0], 24)}, {size}",), VALUE_COLOR, f"{key[0]}: {kind}, {size}")
        )
        lines += [
            Arrow(source, place, has_head=False, is_dashed=True)
            for source in _once(source for source, _ in ends)
        ]
        lines += [
            Arrow(place, target, is_dashed=True) for target in _once(target for _, target in ends)
        ]
    return draw(title, legend, drawn, lines)


def _once(numbers: Iterable[int]) -> Iterable[int]:
    return dict.fromkeys(numbers)


def _node_box(node: PlacedNode, subgraph: PartitionSubgraph, color: DeviceColor) -> Box:
    names = ", ".join(node.original_nodes)
    tooltip = f"{names}: subgraph {subgraph.index} on {subgraph.device}, {node.reason}"
    return Box(node.op, (node.name,), color, tooltip)


def _subgraph_box(subgraph: PartitionSubgraph, color: DeviceColor, is_detailed: bool) -> Box:
    count = f"{len(subgraph.nodes)} node" + ("" if len(subgraph.nodes) == 1 else "s")
    lines = [f"{node.op}  {node.name}" for node in subgraph.nodes] if is_detailed else [count]
    tooltip = f"{count}; in: {', '.join(subgraph.inputs)}; out: {', '.join(subgraph.outputs)}"
    return Box(f"{subgraph.index}: {subgraph.device}", tuple(lines), color, tooltip)
