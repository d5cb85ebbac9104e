"""PARTITION_POLICY: how nodes without a device get one, beyond the list's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from ....errors import DeviceError, PropertyError, nearest
from ....runtime.costs import Shapes, crossing_bytes, node_cost, numpy_s, value_bytes
from ....runtime.devices.device_name import parse_device
from ....runtime.graph import Graph, Node
from ....runtime.properties.properties import Configuration, Property
from ....runtime.properties.property_parsers import parse_choice, parse_integer
from ..subgraphs.affinity import Placement
from .balance import Balance, BalanceDevice, BalanceNode, balance
from .branches import Branches, place_branches
from .measured_times import NODE_TIMES, MeasuredTimes, joined_places, seconds_of
from .priority_costs import PriorityCosts
from .said_speeds import DEVICE_SPEEDS, default_speed, speed_of

__all__ = ["POLICY_PROPERTIES", "Expected", "follow_policy", "judge_priority", "policy_of"]

_parse_bytes = parse_integer(1)


def _parse_limits(given: Any) -> Mapping[str, int]:
    wanted = "a mapping of devices to bytes is wanted, such as {'CUDA.0': 8_000_000_000}"
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ValueError(wanted)
    try:
        return MappingProxyType({device: _parse_bytes(item) for device, item in given.items()})
    except ValueError as error:
        raise ValueError(f"{wanted}: {error}") from error


def _parse_distribution(given: Any) -> str:
    words = given if isinstance(given, set | frozenset | list | tuple) else [given]
    if not words or words == [""]:
        return ""
    if [str(word).upper() for word in words] != ["PIPELINE_PARALLEL"]:
        raise ValueError("'PIPELINE_PARALLEL' or '' is wanted: no layer is divided over devices")
    return "PIPELINE_PARALLEL"


PARTITION_POLICY = Property(
    "PARTITION_POLICY",
    parse_choice("PRIORITY", "PIPELINE", "LATENCY"),
    "PRIORITY",
    "How nodes without an affinity find their device. PRIORITY: the first of the list that takes "
    "them. PIPELINE: one stage for each device, so that the slowest stage is as fast as can be, "
    "for many requests at once. LATENCY: branches side by side where one run ends sooner so.",
)
MODEL_DISTRIBUTION_POLICY = Property(
    "MODEL_DISTRIBUTION_POLICY",
    _parse_distribution,
    "",
    "OpenVINO's name: PIPELINE_PARALLEL is PARTITION_POLICY=PIPELINE.",
)
DEVICE_MEMORY_LIMIT: Property[Mapping[str, int]] = Property(
    "DEVICE_MEMORY_LIMIT",
    _parse_limits,
    MappingProxyType({}),
    "How many bytes of constants a device may get under PARTITION_POLICY=PIPELINE, as {device: "
    "bytes}; without it, five sixths of the memory of devices that have their own. Other policies "
    "keep to no limit, and refuse one.",
)
POLICY_PROPERTIES: tuple[Property[Any], ...] = (
    PARTITION_POLICY,
    MODEL_DISTRIBUTION_POLICY,
    DEVICE_MEMORY_LIMIT,
    DEVICE_SPEEDS,
    NODE_TIMES,
)

OWN_MEMORY = 5 / 6
"""Of a device's memory for constants; OpenVINO counts 1.2 times their bytes."""


class Takers(Protocol):
    """What devices have answered, by nodes of the executed graph."""

    def __call__(self, node: Node) -> frozenset[str]:
        """Return the devices that may run a node."""

    def by_numpy(self, node: Node) -> frozenset[str]:
        """Return the devices that leave it to numpy."""


Fact = Callable[[str, str], Any]
"""``fact(device, metric)``; None where a device is not there, or does not say."""


@dataclass(frozen=True)
class Expected:
    """What a policy expects of the partition that it has made."""

    policy: str
    outcome: Balance | Branches | PriorityCosts
    measured_devices: tuple[str, ...]
    """Those whose times are measured; of others they are estimates."""


def policy_of(config: Configuration) -> str:
    """Return the policy.

    Raises PropertyError where the two names of it disagree, for a limit that it does not keep, and
    for times and speeds that it does not ask for.
    """
    policy = _named_policy(config)
    if policy != "PIPELINE" and config[DEVICE_MEMORY_LIMIT]:
        raise PropertyError(
            f"{config.device}: {DEVICE_MEMORY_LIMIT.key} bounds the stages of "
            f"{PARTITION_POLICY.key}='PIPELINE', and {policy!r} would not keep to it; give that "
            f"policy, or leave the limit out and say in AFFINITY which nodes go where",
            DEVICE_MEMORY_LIMIT.key,
            config.device,
            value=dict(config[DEVICE_MEMORY_LIMIT]),
        )
    for declared in (NODE_TIMES, DEVICE_SPEEDS) if policy == "PRIORITY" else ():
        if config[declared]:
            raise PropertyError(
                f"{config.device}: {declared.key} is what other policies judge a cut by, and "
                f"{PARTITION_POLICY.key}='PRIORITY' asks for the order of the devices alone; give "
                f"'PIPELINE' or 'LATENCY', or leave {declared.key} out",
                declared.key,
                config.device,
                value=config[declared],
            )
    return policy


def _named_policy(config: Configuration) -> str:
    policy: str = config[PARTITION_POLICY]
    if not config[MODEL_DISTRIBUTION_POLICY] or policy == "PIPELINE":
        return policy
    if PARTITION_POLICY.key in config.given:
        raise PropertyError(
            f"{config.device}: {PARTITION_POLICY.key}={policy!r} and "
            f"{MODEL_DISTRIBUTION_POLICY.key}='PIPELINE_PARALLEL' disagree; give one of them",
            PARTITION_POLICY.key,
            config.device,
            value=policy,
        )
    return "PIPELINE"


def follow_policy(
    policy: str,
    graph: Graph,
    takers: Takers,
    devices: Sequence[str],
    config: Configuration,
    shapes: Shapes,
    fact: Fact,
) -> tuple[list[Placement], Expected]:
    """Place each node of a graph of executed nodes; ``takers`` are the devices that may have one.

    Raises DeviceError if the devices have no room for the constants, and PropertyError for what is
    said of none of them.
    """
    _refuse_other_devices(devices, config)
    nodes = list(graph.nodes)
    times = {
        device: MeasuredTimes.of(found)
        for device in devices
        if (found := _said(config[NODE_TIMES], device))
    }
    balanced = _balance_nodes(nodes, takers, shapes, times)
    known = [_balance_device(device, config, fact) for device in devices]
    outcome: Balance | Branches
    if policy == "LATENCY":
        outcome = place_branches(balanced, _edges(nodes, shapes), known)
        reasons = [_branch_reason(outcome)] * len(nodes)
    else:
        joined = joined_places(nodes, times.values())
        found = balance(balanced, crossing_bytes(graph, shapes), known, joined)
        if found is None and joined:
            found = balance(balanced, crossing_bytes(graph, shapes), known)
        if found is None:
            raise _no_room(balanced, known, config)
        outcome = found
        reasons = _stage_reasons(found)
    placements = [
        Placement(device, reason) for device, reason in zip(outcome.affinity, reasons, strict=True)
    ]
    return placements, Expected(policy, outcome, tuple(times))


def judge_priority(
    graph: Graph,
    takers: Takers,
    devices: Sequence[str],
    crossings: Sequence[tuple[str, str, int]],
    config: Configuration,
    shapes: Shapes,
    fact: Fact,
) -> Expected:
    """Estimate a division by the list's order, and what LATENCY would make of the same nodes.

    Nodes have their devices as affinities. crossings: (from, to, bytes) of what crosses.
    """
    nodes, edges = list(graph.nodes), _edges(list(graph.nodes), shapes)
    known = [_balance_device(device, config, fact) for device in devices]
    free = _balance_nodes(nodes, takers, shapes, {})
    placed = [
        replace(item, devices=frozenset({str(node.affinity)}))
        for item, node in zip(free, nodes, strict=True)
    ]
    speeds = {device.name: device.speed for device in known}
    carry_s = math.fsum(
        speeds[source].carry_s(size) + speeds[target].carry_s(size)
        for source, target, size in crossings
    )
    now, other = place_branches(placed, edges, known), place_branches(free, edges, known)
    return Expected("PRIORITY", PriorityCosts(now.seconds, carry_s, other.seconds), ())


def _refuse_other_devices(devices: Sequence[str], config: Configuration) -> None:
    known = {*devices, *(parse_device(device).name for device in devices)}
    for declared in (DEVICE_MEMORY_LIMIT, DEVICE_SPEEDS, NODE_TIMES):
        for device in config[declared]:
            if device not in known:
                raise PropertyError(
                    f"{config.device}: {declared.key} names {device!r}, which is not among its "
                    f"devices {list(devices)}{nearest(device, known)}",
                    declared.key,
                    config.device,
                    value=config[declared],
                )


def _said(values: Mapping[str, Any], device: str) -> Any:
    """Return what a mapping says of a device, or of its kind."""
    return values.get(device, values.get(parse_device(device).name))


def _balance_nodes(
    nodes: Sequence[Node],
    takers: Takers,
    shapes: Shapes,
    times: Mapping[str, MeasuredTimes],
) -> list[BalanceNode]:
    measured = {device: seconds_of(nodes, found) for device, found in times.items()}
    balanced = []
    for number, node in enumerate(nodes):
        used = node.dependencies()
        constants = [value for value in used if value.is_constant]
        carried = [value for value in (*used, *node.outputs) if not value.is_constant]
        cost = node_cost(node, shapes)
        known_s = dict.fromkeys(takers.by_numpy(node), numpy_s(node, cost))
        for device, found in measured.items():
            seconds = found[number]
            if seconds is not None:
                known_s[device] = seconds
        balanced.append(
            BalanceNode(
                node.name,
                cost,
                takers(node),
                known_s,
                tuple((value.name, value_bytes(value, shapes)) for value in constants),
                sum(value_bytes(value, shapes) for value in carried),
            )
        )
    return balanced


def _balance_device(device: str, config: Configuration, fact: Fact) -> BalanceDevice:
    kind = fact(device, "DEVICE_TYPE")
    speed = speed_of(default_speed(kind), _said(config[DEVICE_SPEEDS], device) or {})
    limit = _said(config[DEVICE_MEMORY_LIMIT], device)
    if limit is None:
        own = fact(device, "DEVICE_TOTAL_MEM_SIZE") if kind == "discrete" else None
        limit = None if own is None else int(own * OWN_MEMORY)
    return BalanceDevice(device, speed, limit)


def _edges(nodes: Sequence[Node], shapes: Shapes) -> dict[tuple[int, int], int]:
    number_of = {node: number for number, node in enumerate(nodes)}
    edges: dict[tuple[int, int], int] = {}
    for number, node in enumerate(nodes):
        for value in node.dependencies():
            if value.producer is not None and not value.is_constant:
                key = number_of[value.producer], number
                edges[key] = edges.get(key, 0) + value_bytes(value, shapes)
    return edges


def _stage_reasons(found: Balance) -> list[str]:
    reasons: list[str] = []
    for index, stage in enumerate(found.stages):
        members = found.affinity[len(reasons) : len(reasons) + stage.node_count]
        of_stage = f"stage {index} of the pipeline"
        reasons += [
            of_stage if device == stage.device else f"{of_stage}, refused by {stage.device}"
            for device in members
        ]
    return reasons


def _branch_reason(outcome: Branches) -> str:
    if len(set(outcome.affinity)) > 1:
        return "branches side by side end sooner"
    return "branches side by side would not end sooner"


def _no_room(
    nodes: Sequence[BalanceNode], devices: Sequence[BalanceDevice], config: Configuration
) -> DeviceError:
    total = sum(dict(weight for node in nodes for weight in node.weights).values())
    room = ", ".join(
        f"{device.name}: {'no limit' if device.memory_bytes is None else device.memory_bytes}"
        for device in devices
    )
    largest = max(nodes, key=lambda node: math.fsum(size for _, size in node.weights))
    return DeviceError(
        f"{config.device}: no cut into one stage for each device fits: the constants have {total} "
        f"bytes, those of node {largest.name!r} alone {sum(dict(largest.weights).values())}, and "
        f"there is room for {room}; raise {DEVICE_MEMORY_LIMIT.key} or add a device"
    )
