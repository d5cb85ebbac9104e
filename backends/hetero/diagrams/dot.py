"""The partition in Graphviz's language. Pure."""

from __future__ import annotations

from ..explain import size_text
from ..partition import NodeEdge, Partition, PartitionSubgraph, PlacedNode
from .device_colors import device_colors

__all__ = ["affinity_dot", "subgraphs_dot"]


def affinity_dot(partition: Partition) -> str:
    """Draw every node in the colour of its device; what crosses is dashed, with its size."""
    lines = [*_head(partition), *_legend(partition)]
    for subgraph in partition.subgraphs:
        lines += [_node(partition, subgraph, node) for node in subgraph.nodes]
    return "\n".join([*lines, *_edges(partition), "}", ""])


def subgraphs_dot(partition: Partition) -> str:
    """Draw a cluster for each subgraph around its nodes; what crosses is dashed, with its size."""
    lines = _head(partition)
    for subgraph in partition.subgraphs:
        label = _quoted(f"subgraph {subgraph.index} on {subgraph.device}")
        color = _quoted(device_colors(partition.devices)[subgraph.device].line)
        lines.append(f"  subgraph cluster_{subgraph.index} {{")
        lines.append(f"    label={label}; color={color};")
        lines += ["  " + _node(partition, subgraph, node) for node in subgraph.nodes]
        lines.append("  }")
    return "\n".join([*lines, *_edges(partition), "}", ""])


def _head(partition: Partition) -> list[str]:
    return [
        f"digraph {_quoted(partition.model)} {{",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]


def _legend(partition: Partition) -> list[str]:
    lines = ["  subgraph cluster_legend {", '    label="devices";']
    for device, color in device_colors(partition.devices).items():
        name = _quoted(f"device {device}")
        lines.append(
            f"    {name} [label={_quoted(device)}, fillcolor={_quoted(color.fill)}, "
            f"color={_quoted(color.line)}];"
        )
    return [*lines, "  }"]


def _node(partition: Partition, subgraph: PartitionSubgraph, node: PlacedNode) -> str:
    color = device_colors(partition.devices)[subgraph.device]
    label = _quoted(f"{node.op}\n{node.name}\n{subgraph.device}")
    return (
        f"  {_quoted(node.name)} [label={label}, tooltip={_quoted(node.reason)}, "
        f"fillcolor={_quoted(color.fill)}, color={_quoted(color.line)}];"
    )


def _edges(partition: Partition) -> list[str]:
    owner = {
        node.name: subgraph.index for subgraph in partition.subgraphs for node in subgraph.nodes
    }
    sizes = {cut.value: size_text(cut.type, cut.bytes) for cut in partition.cuts}
    return [
        _edge(edge, None if owner[edge.source] == owner[edge.target] else sizes[edge.value])
        for edge in partition.edges
    ]


def _edge(edge: NodeEdge, cut_size: str | None) -> str:
    line = f"  {_quoted(edge.source)} -> {_quoted(edge.target)}"
    if cut_size is None:
        return f"{line};"
    label = _quoted(f"{edge.value}\n{cut_size}")
    return f"{line} [style=dashed, label={label}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
