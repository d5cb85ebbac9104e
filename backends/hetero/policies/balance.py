"""Which device of a pipeline gets which nodes, and what its stages are expected to take.

Pure. What a node takes on a device was measured there, or is the larger of its operations and its
bytes, each at the device's speed. A device that refuses a node may still have it within its stage
(a detour): the first device that takes the node runs it, and the stage is charged for that and for
both ways. Of the best cut without detours and the best one with them, the one is taken under which
the busiest device has less to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....runtime.costs import DeviceSpeed, NodeCost
from .pipeline_cut import PipelineDevice, PipelineStage, Weight, cut_pipeline

__all__ = ["Balance", "BalanceDevice", "BalanceNode", "StageCost", "balance", "node_seconds"]


@dataclass(frozen=True)
class BalanceNode:
    """A node of the executed graph. ``devices`` take it.

    known_s: what it takes, by devices of which more is known than their speed.
    carried_bytes: what it is given and makes, without constants.
    """

    name: str
    cost: NodeCost
    devices: frozenset[str]
    known_s: Mapping[str, float]
    weights: tuple[Weight, ...] = ()
    carried_bytes: int = 0


@dataclass(frozen=True)
class BalanceDevice:
    """A device and how fast it is; memory_bytes: for constants, None: no limit."""

    name: str
    speed: DeviceSpeed
    memory_bytes: int | None = None


@dataclass(frozen=True)
class StageCost:
    """A stage as it is expected: its seconds, of which ``carry_s`` are for what crosses."""

    device: str
    node_count: int
    seconds: float
    carry_s: float
    weight_bytes: int
    detour_count: int


@dataclass(frozen=True)
class Balance:
    """``affinity`` has a device for each node; ``loads_s`` is what each device does per run."""

    affinity: tuple[str, ...]
    stages: tuple[StageCost, ...]
    loads_s: Mapping[str, float]

    @property
    def bottleneck_s(self) -> float:
        """What the busiest device takes for a run: in a full pipeline the time between answers."""
        return max(self.loads_s.values(), default=0.0)


def balance(
    nodes: Sequence[BalanceNode],
    crossing: Sequence[int],
    devices: Sequence[BalanceDevice],
    joined: Sequence[int] = (),
) -> Balance | None:
    """Return the best cut into one stage for each device at most; None if no cut fits.

    nodes: in topological order. crossing: bytes before each node, and behind the last. joined:
    places that are not cut, by the node behind them. A node must have a device that takes it.
    """
    weights = [node.weights for node in nodes]
    found = []
    for has_detours in (False, True):
        if has_detours and all(len(node.devices) == len(devices) for node in nodes):
            break
        costs = [
            _pipeline_device(device, nodes, crossing, devices, has_detours) for device in devices
        ]
        stages = cut_pipeline(costs, weights, joined)
        if stages is not None:
            found.append(_balance(nodes, crossing, devices, stages))
    return min(found, key=lambda item: item.bottleneck_s, default=None)


def node_seconds(node: BalanceNode, device: BalanceDevice) -> float:
    """Return what a node takes on a device; infinity if that refuses it."""
    if device.name not in node.devices:
        return math.inf
    measured = node.known_s.get(device.name)
    return device.speed.node_s(node.cost) if measured is None else measured


def _pipeline_device(
    device: BalanceDevice,
    nodes: Sequence[BalanceNode],
    crossing: Sequence[int],
    devices: Sequence[BalanceDevice],
    has_detours: bool,
) -> PipelineDevice:
    node_s = [node_seconds(node, device) for node in nodes]
    if has_detours:
        node_s = [
            math.fsum(_detour(node, device, _other(node, devices)))
            if device.name not in node.devices
            else seconds
            for node, seconds in zip(nodes, node_s, strict=True)
        ]
    carry_s = _carries(device, crossing)
    return PipelineDevice(device.name, tuple(node_s), carry_s, device.memory_bytes)


def _carries(device: BalanceDevice, crossing: Sequence[int]) -> tuple[float, ...]:
    """What is given and returned has no other stage beside it, so no hand-over."""
    speed = device.speed
    inner = [speed.carry_s(size) for size in crossing[1:-1]]
    return (
        crossing[0] / speed.carried_bytes_per_s,
        *inner,
        crossing[-1] / speed.carried_bytes_per_s,
    )


def _other(node: BalanceNode, devices: Sequence[BalanceDevice]) -> BalanceDevice:
    return next(device for device in devices if device.name in node.devices)


def _detour(
    node: BalanceNode, device: BalanceDevice, other: BalanceDevice
) -> tuple[float, float, float]:
    """Return what the other device computes, and what each of the two carries."""
    size = node.carried_bytes
    return node_seconds(node, other), device.speed.carry_s(size), other.speed.carry_s(size)


def _balance(
    nodes: Sequence[BalanceNode],
    crossing: Sequence[int],
    devices: Sequence[BalanceDevice],
    stages: Sequence[PipelineStage],
) -> Balance:
    by_name = {device.name: device for device in devices}
    affinity: list[str] = []
    costs: list[StageCost] = []
    loads = {device.name: 0.0 for device in devices}
    for stage in stages:
        device = by_name[stage.device]
        members = nodes[stage.first : stage.end]
        carries = _carries(device, crossing)
        carry_s = carries[stage.first] + carries[stage.end]
        loads[device.name] += carry_s
        detours = 0
        for node in members:
            if device.name in node.devices:
                affinity.append(device.name)
                loads[device.name] += node_seconds(node, device)
                continue
            other = _other(node, devices)
            computed_s, here_s, there_s = _detour(node, device, other)
            affinity.append(other.name)
            loads[device.name] += here_s
            loads[other.name] += computed_s + there_s
            detours += 1
        held = dict(weight for node in members for weight in node.weights)
        costs.append(
            StageCost(
                device.name, len(members), stage.seconds, carry_s, sum(held.values()), detours
            )
        )
    return Balance(tuple(affinity), tuple(costs), loads)
