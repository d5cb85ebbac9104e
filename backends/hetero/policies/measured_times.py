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

from ....runtime.graph import Node
from ....runtime.properties.properties import Property
from ....runtime.runs.bindings import NodeProfile

__all__ = ["NODE_TIMES", "MeasuredTimes", "joined_places", "seconds_of"]


Groups = tuple[tuple[tuple[str, ...], float], ...]
"""Nodes of the file that ran as one, and their seconds."""


@dataclass(frozen=True)
class MeasuredTimes:
    """Seconds by the nodes of the file that ran as one. ``is_whole``: no others ran at all."""

    groups: Groups
    is_whole: bool

    @classmethod
    def of(cls, said: Mapping[str, float] | Groups) -> MeasuredTimes:
        """Take what NODE_TIMES says of a device."""
        if isinstance(said, Mapping):
            return cls(tuple(((node,), seconds) for node, seconds in said.items()), is_whole=False)
        return cls(said, is_whole=True)


def _parse_times(given: Any) -> Mapping[str, Mapping[str, float] | Groups]:
    if not isinstance(given, Mapping):
        raise ValueError(_WANTED)
    parsed: dict[str, Mapping[str, float] | Groups] = {}
    for device, times in given.items():
        if not isinstance(device, str):
            raise ValueError(f"{_WANTED}; {device!r} is no device")
        if isinstance(times, Mapping):
            seconds = {_name(node): _seconds(node, item) for node, item in times.items()}
            parsed[device] = MappingProxyType(seconds)
        else:
            parsed[device] = _profiled(times)
    return MappingProxyType(parsed)


_WANTED = (
    "a mapping of devices to {node: seconds}, or to the entries of request.profiling() of one run "
    "or several, is wanted"
)


def _profiled(entries: Any) -> Groups:
    """Take entries, or pairs of names and seconds, which they become."""
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise ValueError(_WANTED)
    found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for entry in entries:
        if isinstance(entry, NodeProfile):
            seconds = (entry.end_ns - entry.start_ns) / 1e9
            found[entry.original_nodes or (entry.name,)].append(seconds)
        elif isinstance(entry, list | tuple) and len(entry) == 2 and not isinstance(entry[0], str):
            names, seconds = entry
            found[tuple(map(_name, names))].append(_seconds(names, seconds))
        else:
            raise ValueError(f"{_WANTED}; {entry!r} is no entry")
    return tuple((names, median(seconds)) for names, seconds in found.items())


def _name(node: Any) -> str:
    if not isinstance(node, str):
        raise ValueError(f"{_WANTED}; {node!r} is no node's name")
    return node


def _seconds(node: Any, given: Any) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= given < math.inf:
        raise ValueError(f"{_WANTED}, none below 0; {node!r}: {given!r} is none")
    return float(given)


NODE_TIMES: Property[Mapping[str, Mapping[str, float] | Groups]] = Property(
    "NODE_TIMES",
    _parse_times,
    MappingProxyType({}),
    "What nodes took, for PARTITION_POLICY=PIPELINE or LATENCY: {device: request.profiling()}, "
    "also of several runs one after the other, or {device: {node: seconds}}; what is said of CPU "
    "is for CPU.1 too. Under PRIORITY it is refused.",
    only_at_load=True,
)


def seconds_of(nodes: Sequence[Node], times: MeasuredTimes) -> list[float | None]:
    """Return what each node took; None: not measured.

    A node that ran as one with others has 0, but for the first of them.
    """
    owners = _owners(nodes)
    found: list[float | None] = [0.0 if times.is_whole else None] * len(nodes)
    for names, seconds in times.groups:
        numbers = sorted({owners[name] for name in names if name in owners})
        for place, number in enumerate(numbers):
            found[number] = (found[number] or 0.0) + (0.0 if place else seconds)
    return found


def joined_places(nodes: Sequence[Node], times: Iterable[MeasuredTimes]) -> list[int]:
    """List the places that are not to be cut, by the node behind: what runs as one stays together.

    Measured groups do, and elementwise nodes that only work on what a matmul or the like before
    them makes: devices compute them as its end.
    """
    owners = _owners(nodes)
    joined: set[int] = set()
    for number, (before, node) in enumerate(pairwise(nodes), 1):
        is_end = before.op not in _ELEMENTWISE or number - 1 in joined
        if is_end and _only_follows(before, node):
            joined.add(number)
    for measured in times:
        for names, _ in measured.groups:
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
