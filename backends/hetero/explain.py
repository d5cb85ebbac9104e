"""The partition as text for people."""

from __future__ import annotations

import math

from ...runtime.graph import TensorType, ValueType
from .partition import Cut, Partition, PartitionSubgraph, PlacedNode
from .policies.balance import Balance
from .policies.branches import Branches
from .policies.policy import Expected
from .policies.priority_costs import PriorityCosts

__all__ = ["bytes_text", "explain_partition", "size_text", "type_text"]


def explain_partition(partition: Partition) -> str:
    """Return which node runs where and why, and what crosses; a few lines for each subgraph.

    Subgraphs come in order of execution; two neighbours need not depend on each other.
    """
    blocks = [_headline(partition)]
    expected = partition.expectation()
    if expected is not None:
        blocks.append(_expected_text(expected))
    blocks += [_subgraph_text(subgraph) for subgraph in partition.subgraphs]
    if partition.cuts:
        blocks.append(_cuts_text(partition.cuts))
    if partition.removed_nodes:
        names = ", ".join(partition.removed_nodes)
        blocks.append(f"not executed, passes have made them needless: {names}")
    return "\n".join(blocks)


def bytes_text(count: int | None) -> str:
    """Write a size as people read it; ``? B`` where it is not known."""
    if count is None:
        return "? B"
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def size_text(value_type: ValueType | None, count: int | None) -> str:
    """Write the size of a value; with symbols where it depends on them: ``256 B × batch``."""
    if count is not None or not isinstance(value_type, TensorType) or value_type.shape is None:
        return bytes_text(count)
    symbols = [dim for dim in value_type.shape if not isinstance(dim, int)]
    known = math.prod(dim for dim in value_type.shape if isinstance(dim, int))
    unit = bytes_text(known * value_type.dtype.item_bytes)
    return " × ".join([unit, *(str(symbol or "?") for symbol in symbols)])


def type_text(value_type: ValueType | None) -> str:
    """Write a type, or say that it is not known."""
    return "type not known" if value_type is None else str(value_type)


def _headline(partition: Partition) -> str:
    known = [cut.bytes for cut in partition.cuts if cut.bytes is not None]
    total = f" ({bytes_text(sum(known))})" if len(known) == len(partition.cuts) else ""
    count = partition.crossing_value_count
    verb = "crosses" if count == 1 else "cross"
    crossing = f"{_counted(count, 'value')} {verb} {_counted(len(partition.cuts), 'cut')}{total}"
    return (
        f"{partition.model} on {', '.join(partition.devices)}: "
        f"{_counted(partition.node_count, 'node')} in "
        f"{_counted(len(partition.subgraphs), 'subgraph')}, "
        f"{crossing if partition.cuts else 'nothing crosses'}"
    )


def _expected_text(expected: Expected) -> str:
    outcome = expected.outcome
    names = ", ".join(expected.measured_devices)
    basis = f"measured on {names}" if names else "estimated"
    if isinstance(outcome, Balance):
        return _pipeline_text(outcome, basis)
    if isinstance(outcome, PriorityCosts):
        return _priority_text(outcome)
    return _branches_text(outcome, basis)


def _priority_text(outcome: PriorityCosts) -> str:
    text = (
        f"by the order of the devices, estimated: {_time_text(outcome.seconds)} a run; what "
        f"crosses takes {_time_text(outcome.carry_s)} if nothing runs beside it"
    )
    if outcome.are_cuts_dear:
        text += f"; PARTITION_POLICY=LATENCY would divide for {_time_text(outcome.latency_s)}"
    return text


def _pipeline_text(outcome: Balance, basis: str) -> str:
    busiest = max(outcome.loads_s, key=lambda device: outcome.loads_s[device])
    count = _counted(len(outcome.stages), "stage")
    lines = [
        f"pipeline of {count}, {basis}: the bottleneck is {busiest} with "
        f"{_time_text(outcome.bottleneck_s)} a run"
    ]
    for index, stage in enumerate(outcome.stages):
        line = (
            f"  stage {index} on {stage.device}: {_counted(stage.node_count, 'node')}, "
            f"{_time_text(stage.seconds)}, of it {_time_text(stage.carry_s)} for what crosses; "
            f"{bytes_text(stage.weight_bytes)} of constants"
        )
        if stage.detour_count:
            line += f"; {_counted(stage.detour_count, 'node')} elsewhere"
        lines.append(line)
    loads = ", ".join(f"{name} {_time_text(load)}" for name, load in outcome.loads_s.items())
    return "\n".join([*lines, f"  each run keeps busy: {loads}"])


def _branches_text(outcome: Branches, basis: str) -> str:
    alone = "no device runs it alone"
    if outcome.alone_s is not None:
        alone = f"{_time_text(outcome.alone_s)} on the best device alone"
    loads = ", ".join(f"{name} {_time_text(load)}" for name, load in outcome.loads_s.items())
    return (
        f"branches, {basis}: {_time_text(outcome.seconds)} a run, {alone}\n"
        f"  each run keeps busy: {loads}"
    )


def _time_text(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _subgraph_text(subgraph: PartitionSubgraph) -> str:
    after = ""
    if subgraph.needs:
        after = f", after {' and '.join(map(str, subgraph.needs))}"
    nodes = _counted(len(subgraph.nodes), "node")
    lines = [f"subgraph {subgraph.index} on {subgraph.device}: {nodes}{after}"]
    lines.append(f"  in: {_names(subgraph.inputs)}  out: {_names(subgraph.outputs)}")
    width = max((len(_label(node)) for node in subgraph.nodes), default=0)
    lines += [f"  {_label(node):<{width}}  {node.reason}".rstrip() for node in subgraph.nodes]
    return "\n".join(lines)


def _label(node: PlacedNode) -> str:
    return f"{', '.join(node.original_nodes) or node.name} ({node.op})"


def _cuts_text(cuts: tuple[Cut, ...]) -> str:
    lines = ["cuts:"]
    width = max(len(cut.value) for cut in cuts)
    lines += [
        f"  {cut.source} -> {cut.target}  {cut.value:<{width}}  {type_text(cut.type)}, "
        f"{size_text(cut.type, cut.bytes)}"
        for cut in cuts
    ]
    return "\n".join(lines)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
