"""Whether branches of a graph pay on several devices at once, for the time of one run: pure.

**Tasks.** Nodes that only follow each other, and that one device takes, are one task: a branch
between a fork and a join is mostly one. **Placing** is by earliest finish (Topcuoglu, Hariri and
Wu, "Performance-effective and low-complexity task scheduling", 2002): tasks are taken by what is
left to do behind them, the longest first, and each goes where it ends first: after its inputs have
come, which takes a hand-over and their bytes if they are made elsewhere, and after what the device
has to do already. **Paying** is judged at the end: the whole on the one device that runs it fastest
is the alternative, and stays unless the branches end clearly before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .balance import BalanceDevice, BalanceNode, node_seconds

__all__ = ["Branches", "place_branches"]

CLEARLY = 0.95
"""Of the time on one device; estimates are not better than that."""


@dataclass(frozen=True)
class Branches:
    """``affinity`` has a device for each node; ``alone_s`` is the best single device's time.

    None where no single device takes all nodes.
    """

    affinity: tuple[str, ...]
    seconds: float
    alone_s: float | None
    loads_s: Mapping[str, float]


def place_branches(
    nodes: Sequence[BalanceNode],
    edges: Mapping[tuple[int, int], int],
    devices: Sequence[BalanceDevice],
) -> Branches:
    """Place nodes, in topological order, for the shortest run; ties go to the first device.

    edges: bytes by (producer, consumer). A node must have a device that takes it.
    """
    alone = {
        device.name: math.fsum(node_seconds(node, device) for node in nodes) for device in devices
    }
    best = min(devices, key=lambda device: alone[device.name])
    alone_s = alone[best.name]
    affinity, seconds = _schedule(nodes, edges, devices)
    if alone_s < math.inf and seconds > CLEARLY * alone_s:
        affinity, seconds = [best.name] * len(nodes), alone_s
    loads = {device.name: 0.0 for device in devices}
    by_name = {device.name: device for device in devices}
    for node, name in zip(nodes, affinity, strict=True):
        loads[name] += node_seconds(node, by_name[name])
    known_s = alone_s if alone_s < math.inf else None
    return Branches(tuple(affinity), seconds, known_s, loads)


def _schedule(
    nodes: Sequence[BalanceNode],
    edges: Mapping[tuple[int, int], int],
    devices: Sequence[BalanceDevice],
) -> tuple[list[str], float]:
    task_of = _tasks(nodes, edges)
    members: dict[int, list[int]] = {}
    for number, task in enumerate(task_of):
        members.setdefault(task, []).append(number)
    carried: dict[int, dict[int, int]] = {task: {} for task in members}  # by task, what it is given
    behind: dict[int, list[int]] = {task: [] for task in members}
    for (producer, consumer), size in edges.items():
        source, target = task_of[producer], task_of[consumer]
        if source != target:
            if source not in carried[target]:
                behind[source].append(target)
            carried[target][source] = carried[target].get(source, 0) + size
    took = {
        task: [math.fsum(node_seconds(nodes[n], device) for n in inside) for device in devices]
        for task, inside in members.items()
    }
    rank: dict[int, float] = {}
    for task in sorted(members, reverse=True):  # a task is called after its first node
        finite = [seconds for seconds in took[task] if seconds < math.inf]
        after = max((rank[target] for target in behind[task]), default=0.0)
        rank[task] = math.fsum(finite) / len(finite) + after
    waits = {task: len(sources) for task, sources in carried.items()}
    return _place_in_order(nodes, devices, members, carried, behind, took, rank, waits)


def _place_in_order(
    nodes: Sequence[BalanceNode],
    devices: Sequence[BalanceDevice],
    members: Mapping[int, Sequence[int]],
    carried: Mapping[int, Mapping[int, int]],
    behind: Mapping[int, Sequence[int]],
    took: Mapping[int, Sequence[float]],
    rank: Mapping[int, float],
    waits: dict[int, int],
) -> tuple[list[str], float]:
    free_s = [0.0] * len(devices)
    place: dict[int, int] = {}
    end_s: dict[int, float] = {}
    affinity = [""] * len(nodes)
    ready = [task for task, count in waits.items() if not count]
    while ready:
        task = max(ready, key=lambda item: (rank[item], -item))
        ready.remove(task)
        ends = []
        for number, device in enumerate(devices):
            start = free_s[number]
            for source, size in carried[task].items():
                come = end_s[source]
                if place[source] != number:
                    other = devices[place[source]]
                    come += device.speed.carry_s(size) + other.speed.carry_s(size)
                start = max(start, come)
            ends.append(start + took[task][number])
        chosen = min(range(len(devices)), key=ends.__getitem__)
        place[task], end_s[task], free_s[chosen] = chosen, ends[chosen], ends[chosen]
        for node in members[task]:
            affinity[node] = devices[chosen].name
        for target in behind[task]:
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    return affinity, max(end_s.values(), default=0.0)


def _tasks(nodes: Sequence[BalanceNode], edges: Mapping[tuple[int, int], int]) -> list[int]:
    """Return for each node the first node of its task."""
    makers: list[list[int]] = [[] for _ in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for producer, consumer in edges:
        users[producer].append(consumer)
        makers[consumer].append(producer)
    task_of: list[int] = []
    takers: dict[int, frozenset[str]] = {}
    for number, node in enumerate(nodes):
        task = number
        if len(makers[number]) == 1 and len(users[makers[number][0]]) == 1:
            before = task_of[makers[number][0]]
            if takers[before] & node.devices:
                task = before
        takers[task] = takers[task] & node.devices if task in takers else node.devices
        task_of.append(task)
    return task_of
