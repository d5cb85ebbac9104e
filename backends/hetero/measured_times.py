"""What nodes took on a device, as a user has measured it, on the nodes of the executed graph."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Any

from ...runtime.graph import Node
from ...runtime.properties.properties import Property
from ...runtime.runs.bindings import NodeProfile

__all__ = ["NODE_TIMES", "MeasuredTimes", "joined_places", "seconds_of"]


@dataclass(frozen=True)
class MeasuredTimes:
    """Seconds by the nodes of the file that ran as one. ``is_whole``: no others ran at all."""

    groups: Mapping[tuple[str, ...], float]
    is_whole: bool


def _parse_times(given: Any) -> Mapping[str, MeasuredTimes]:
    wanted = (
        "a mapping of devices to {node: seconds}, or to the entries of request.profiling() of one "
        "run or several, is wanted"
    )
    if not isinstance(given, Mapping):
        raise ValueError(wanted)
    parsed = {}
    for device, times in given.items():
        if not isinstance(device, str):
            raise ValueError(f"{wanted}; {device!r} is no device")
        if isinstance(times, MeasuredTimes):
            parsed[device] = times
        elif isinstance(times, Mapping):
            parsed[device] = MeasuredTimes(_plain(times, wanted), is_whole=False)
        else:
            parsed[device] = MeasuredTimes(_profiled(times, wanted), is_whole=True)
    return MappingProxyType(parsed)


def _plain(times: Mapping[Any, Any], wanted: str) -> dict[tuple[str, ...], float]:
    for node, seconds in times.items():
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not isinstance(node, str) or not is_number or not 0 <= seconds < math.inf:
            raise ValueError(f"{wanted}, none below 0; {node!r}: {seconds!r} is none")
    return {(node,): float(seconds) for node, seconds in times.items()}


def _profiled(entries: Any, wanted: str) -> dict[tuple[str, ...], float]:
    if not isinstance(entries, Iterable):
        raise ValueError(wanted)
    found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for entry in entries:
        if not isinstance(entry, NodeProfile):
            raise ValueError(f"{wanted}; {entry!r} is no entry")
        seconds = (entry.end_ns - entry.start_ns) / 1e9
        found[entry.original_nodes or (entry.name,)].append(seconds)
    return {names: median(seconds) for names, seconds in found.items()}


NODE_TIMES: Property[Mapping[str, MeasuredTimes]] = Property(
    "NODE_TIMES",
    _parse_times,
    MappingProxyType({}),
    "What nodes took, for PARTITION_POLICY: {device: request.profiling()}, also of several runs "
    "one after the other, or {device: {node: seconds}}; what is said of CPU is for CPU.1 too.",
    only_at_load=True,
)


def seconds_of(nodes: Sequence[Node], times: MeasuredTimes) -> list[float | None]:
    """Return what each node took; None: not measured.

    A node that ran as one with others has 0, but for the first of them.
    """
    owners = _owners(nodes)
    found: list[float | None] = [0.0 if times.is_whole else None] * len(nodes)
    for names, seconds in times.groups.items():
        numbers = sorted({owners[name] for name in names if name in owners})
        for place, number in enumerate(numbers):
            found[number] = (found[number] or 0.0) + (0.0 if place else seconds)
    return found


def joined_places(nodes: Sequence[Node], times: Iterable[MeasuredTimes]) -> list[int]:
    """List the places that are not to be cut, by the node behind: what runs as one stays together.

    Measured groups do, and elementwise nodes that only work on what a product or the like before
    them makes: devices compute them as its end.
    """
    owners = _owners(nodes)
    joined: set[int] = set()
    for number, (before, node) in enumerate(pairwise(nodes), 1):
        is_end = before.op not in _ELEMENTWISE or number - 1 in joined
        if is_end and _only_follows(before, node):
            joined.add(number)
    for measured in times:
        for names in measured.groups:
            numbers = [owners[name] for name in names if name in owners]
            if numbers:
                joined.update(range(min(numbers) + 1, max(numbers) + 1))
    return sorted(joined)


def _owners(nodes: Sequence[Node]) -> dict[str, int]:
    owners: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in (node.name, *node.fused_from):
            owners.setdefault(name, number)
    return owners


def _only_follows(before: Node, node: Node) -> bool:
    if node.op not in _ELEMENTWISE or len(before.outputs) != 1:
        return False
    value = before.outputs[0]
    return value in node.inputs and value.consumers == [node] and not value.is_graph_output


_ELEMENTWISE = frozenset(
    (
        "Abs",
        "Add",
        "BatchNormalization",
        "Cast",
        "Clip",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Log",
        "Mish",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tanh",
    )
)
