"""ModelDivider: places the nodes of a model on devices by their answers, and cuts it.

The passes run in between: each node has its device by then, so that none of them merges nodes of
different devices, and under a policy the nodes that they leave are placed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import ClosedError, DeviceError, UnsupportedOpError
from ...executors.cached_property import cached_property
from ...runtime.costs import NUMPY, Shapes
from ...runtime.devices.extension import NodeRule, TypeRuleOf, find_extension, tell_types
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Model, Node
from ...runtime.graph.traversal import all_nodes
from ...runtime.passes import (
    Support,
    SupportMap,
    default_passes,
    specialize,
    specialize_with_report,
)
from ...runtime.properties.properties import INPUT_SHAPES, Configuration
from ...runtime.type_inference import correct_graph_types
from .division import Division
from .partition import Partition, make_partition
from .policies.policy import Expected, follow_policy, judge_priority, policy_of
from .subgraphs.affinity import NodeOrigin, Placement, Wish, place_nodes, refuse, wishes_of
from .subgraphs.cutting import cut_model, node_edges
from .subgraphs.schedule import execution_order
from .subgraphs.selection import select_subgraphs
from .subgraphs.signatures import static_shapes
from .subgraphs.unfolded import follow_users, is_wanted_by_user

__all__ = ["ModelDivider", "Placing"]


@dataclass(frozen=True)
class Takers:
    """Called with a node of the executed graph, returns the devices that may run it."""

    answers: Mapping[str, SupportMap]
    wishes: Mapping[str, Wish]

    def __call__(self, node: Node) -> frozenset[str]:
        found = set(self.answers)
        for name in node.fused_from:
            wish = self.wishes.get(name)
            missing = Support(False)
            found = {
                device
                for device in found
                if self.answers[device].get(name, missing).supported
                and (wish is None or wish.device == device)
            }
        return frozenset(found or {str(node.affinity)})

    def by_numpy(self, node: Node) -> frozenset[str]:
        """Return the devices that leave a node to numpy."""
        return frozenset(
            device
            for device, said in self.answers.items()
            if any(name in said and said[name].implementation == NUMPY for name in node.fused_from)
        )


@dataclass(frozen=True)
class Placing:
    """A copy of a model, and where its nodes may go and go first, by the file's names."""

    model: Model
    nodes: list[NodeOrigin]
    wishes: dict[str, Wish]
    answers: dict[str, SupportMap]
    placed: dict[str, Placement]
    refused: dict[str, dict[str, str]]

    @cached_property
    def wishes_of_origins(self) -> dict[str, Wish]:
        """The wishes for nodes, by the nodes of the file that they stand for."""
        found = {}
        for node in self.nodes:
            if node.name in self.wishes:
                found.update(dict.fromkeys(node.origins, self.wishes[node.name]))
        return found

    @property
    def takers(self) -> Takers:
        """What tells which devices may run a node; it holds no model."""
        return Takers(self.answers, self.wishes_of_origins)


@dataclass(frozen=True)
class ModelDivider:
    """Divides models over ``device_configs``, in order of priority, with the properties of each.

    ``name`` is what messages call them together, ``affinities`` the devices that the user gives to
    nodes. ``advise`` says on which devices a model would run, from the answers of these.
    """

    core: CoreHandle
    name: str
    config: Configuration
    affinities: Mapping[str, str]
    device_configs: Mapping[str, Mapping[str, Any]]
    advise: Callable[[Model, Mapping[str, SupportMap]], str]

    def place(self, model: Model) -> Placing:
        """Copy the model and decide for each of its nodes, by the types that its parts will have.

        What the file alone says of a value in between is none of them.
        """
        devices = list(self.device_configs)
        rules = {device: self.core.type_rules_of(device) for device in devices}
        rule_of = partial(_first_rule, rules, self.affinities)
        if any(rule_of(node, model.opsets) for node in all_nodes(model.graph)):
            model = model.copy()
            tell_types(model, rule_of)
        copied = specialize(model, {}, ())
        correct_graph_types(copied.graph)
        for node in copied.graph.nodes:
            node.fused_from = node.fused_from or (node.name,)
        nodes = [
            NodeOrigin(node.name, node.op, node.fused_from, node.affinity)
            for node in copied.graph.nodes
        ]
        main = {node.name for node in nodes}
        inner = [node.name for node in all_nodes(copied.graph) if node.name not in main]
        wishes = wishes_of(nodes, self.affinities, devices, inner)
        answers = self._answers(copied)
        return Placing(copied, nodes, wishes, answers, *place_nodes(nodes, wishes, answers))

    def divide(self, model: Model) -> Division:
        """Place the nodes, run the passes and cut; raises UnsupportedOpError."""
        policy, devices = policy_of(self.config), list(self.device_configs)
        placing = self.place(model)
        copied, nodes, placed = placing.model, placing.nodes, placing.placed
        if placing.refused:
            raise self._refusal(placing)
        for node in copied.graph.nodes:
            _give(node, placed[node.name].device)
        kept_ops = self._tie_extensions(copied)
        unfolded = {device: self._unfolded_ops(device) for device in devices}
        follow_users(copied.graph, unfolded, placing.wishes)
        passes = default_passes(kept_ops, is_wanted_by_user(unfolded), decomposes=False)
        whole, report = specialize_with_report(copied, {}, passes, is_inferred=True)
        correct_graph_types(whole.graph)
        by_origin: dict[str, Placement] = {}
        for origin in nodes:
            for name in origin.origins:
                by_origin.setdefault(name, placed[origin.name])
        expected = None
        if policy != "PRIORITY":
            expected = self._follow_policy(policy, whole, placing, by_origin)
        names = [node.name for node in whole.graph.nodes]
        edges = node_edges(whole.graph)
        affinity = {node.name: str(node.affinity) for node in whole.graph.nodes}
        subgraphs = select_subgraphs(names, edges, affinity, devices)
        ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
        cut = cut_model(whole, ordered)
        for piece in cut.subgraphs:  # a policy may bring nodes together that are equal
            piece.model.is_clean = policy == "PRIORITY"
        partition = make_partition(
            whole, cut, by_origin, _main_names(report.removed_names, nodes), devices, expected
        )
        if policy == "PRIORITY" and len(ordered) > 1:
            judge = partial(self._judged, whole, placing.takers, partition)
            partition = replace(partition, judge=judge)
        return Division(whole, cut, partition)

    def _answers(self, model: Model) -> dict[str, SupportMap]:
        return {
            device: self.core.query_network(model, device, values)
            for device, values in self.device_configs.items()
        }

    def _refusal(self, placing: Placing) -> UnsupportedOpError:
        wishes = wishes_of(placing.nodes, self.affinities, list(self.device_configs))
        if any(name in wishes for name in placing.refused):
            way_out = "change the affinity that asks for the wrong device"
        else:
            way_out = self.advise(placing.model, placing.answers)
        return refuse(placing.nodes, placing.refused, self.name, way_out)

    def _tie_extensions(self, model: Model) -> list[str]:
        """Have the devices' own extensions tell types; returns the operators that they compute."""
        rules = {device: self.core.type_rules_of(device) for device in self.device_configs}

        def rule_of(node: Node, opsets: Mapping[str, int]) -> NodeRule | None:
            return rules[str(node.affinity)](node, opsets)

        tell_types(model, rule_of, keeps_others=False)
        extensions = {device: self.core.extensions_of(device) for device in self.device_configs}
        if not any(extensions.values()):
            return []
        return [
            node.op
            for node in all_nodes(model.graph)
            if find_extension(node, extensions[str(node.affinity)]) is not None
        ]

    def _unfolded_ops(self, device: str) -> Sequence[str]:
        """List the operators that a device does not want folded; few devices have any."""
        is_known = "UNFOLDED_OPS" in self.core.get_metric(device, "SUPPORTED_METRICS")
        return self.core.get_metric(device, "UNFOLDED_OPS") if is_known else ()

    def _follow_policy(
        self, policy: str, whole: Model, placing: Placing, by_origin: dict[str, Placement]
    ) -> Expected:
        """Place the executed nodes anew; those that the user has placed stay where they are."""
        placements, expected = follow_policy(
            policy,
            whole.graph,
            placing.takers,
            list(placing.answers),
            self.config,
            self._shapes(whole),
            self._fact,
        )
        for node, placement in zip(whole.graph.nodes, placements, strict=True):
            _give(node, placement.device)
            for name in node.fused_from:
                is_asked_for = name in placing.wishes_of_origins
                reason = by_origin[name].reason if is_asked_for else placement.reason
                by_origin[name] = Placement(placement.device, reason)
        return expected

    def _judged(self, whole: Model, takers: Takers, partition: Partition) -> Expected | None:
        """Estimate what the cuts cost that the order of the devices has brought."""
        device_of = [subgraph.device for subgraph in partition.subgraphs]
        crossings = [
            (device_of[cut.source], device_of[cut.target], cut.bytes or 0) for cut in partition.cuts
        ]
        devices, shapes = list(takers.answers), self._shapes(whole)
        try:
            return judge_priority(
                whole.graph, takers, devices, crossings, self.config, shapes, self._fact
            )
        except ClosedError:  # there is no device any more that could be asked
            return None

    def _shapes(self, whole: Model) -> Shapes:
        signatures = self.config[INPUT_SHAPES]
        return static_shapes(whole, signatures[0]) if signatures else {}

    def _fact(self, device: str, metric: str) -> Any:
        """Ask a device for a fact; None where it is not there, or does not say."""
        try:
            if metric in self.core.get_metric(device, "SUPPORTED_METRICS"):
                return self.core.get_metric(device, metric)
        except DeviceError:  # what answers queries without being there is an accelerator
            return "discrete" if metric == "DEVICE_TYPE" else None
        return None


def _give(node: Node, device: str) -> None:
    """Give a node, and the nodes in its bodies, to a device."""
    node.affinity = device
    for inner in (found for body in node.bodies() for found in all_nodes(body)):
        inner.affinity = device


def _first_rule(
    rules: Mapping[str, TypeRuleOf],
    wishes: Mapping[str, str],
    node: Node,
    opsets: Mapping[str, int],
) -> NodeRule | None:
    """Return the rule by which a node's types are inferred before its device is known.

    That of the first device which has one. An operator of ONNX's own runs without one, too: of that
    only the first device, or the one that is asked for, counts.
    """
    wished = str(wishes.get(node.name) or node.affinity)
    devices = [wished] if wished in rules else list(rules)
    if not node.domain:
        devices = devices[:1]
    return next(filter(None, (rules[device](node, opsets) for device in devices)), None)


def _main_names(removed: Sequence[str], nodes: Sequence[NodeOrigin]) -> list[str]:
    """Leave out what was in bodies: those are not placed on a device."""
    known = {name for node in nodes for name in node.origins}
    return [name for name in removed if name in known]
