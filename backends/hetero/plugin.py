"""The HETERO plugin: one model over several devices, each node where it was asked for or fits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar

from ...errors import (
    BlobError,
    DeviceError,
    PropertyError,
    UnsupportedOpError,
)
from ...executors import allowance_kept
from ...runtime.blobs.network_record import NetworkRecord
from ...runtime.blobs.reader import Blob
from ...runtime.devices.device_name import HOLD_ONE, parse_device
from ...runtime.devices.extension import NodeRule, TypeRuleOf, find_extension, tell_types
from ...runtime.devices.virtual_plugin import (
    DEVICE_PROPERTIES,
    MULTI_DEVICE_PRIORITIES,
    VirtualPlugin,
)
from ...runtime.graph import Model, Node
from ...runtime.graph.stand_ins import release_constants
from ...runtime.graph.traversal import all_nodes
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.passes import (
    Support,
    SupportMap,
    default_passes,
    specialize,
    specialize_with_report,
)
from ...runtime.properties.properties import (
    INPUT_SHAPES,
    OUTPUT_LOCATION,
    REQUEST_PROPERTIES,
    STATE,
    Configuration,
    Property,
    parse_text,
)
from ...runtime.type_inference import correct_graph_types
from .diagrams.dump import dump_diagrams
from .division import Division
from .division_record import part_name, read_division
from .executable_network import HeteroNetwork
from .partition import make_partition
from .policies.policy import POLICY_PROPERTIES, Expected, follow_policy, policy_of
from .subgraphs.affinity import NodeOrigin, Placement, Wish, place_nodes, refuse, wishes_of
from .subgraphs.cutting import cut_model, node_edges
from .subgraphs.locations import output_locations, state_locations, states_inside
from .subgraphs.schedule import execution_order
from .subgraphs.selection import select_subgraphs
from .subgraphs.signatures import static_shapes, subgraph_signatures
from .subgraphs.unfolded import follow_users, is_wanted_by_user

__all__ = ["AFFINITY", "DUMP_GRAPH", "HeteroPlugin"]


def _parse_affinity(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("a mapping node name -> device is wanted")
    for node, device in given.items():
        if not isinstance(node, str) or not isinstance(device, str):
            raise ValueError(f"node names and devices are strings, and {node!r}: {device!r} is not")
    return MappingProxyType(dict(given))


AFFINITY: Property[Mapping[str, str]] = Property(
    "AFFINITY",
    _parse_affinity,
    MappingProxyType({}),
    "Which node of the file runs where: {node: device}. The other nodes go to the first device of "
    "the list that supports them.",
    only_at_load=True,
)
DUMP_GRAPH = Property(
    "DUMP_GRAPH",
    parse_text,
    "",
    "A folder to write the partition to, as dot and SVG: hetero_affinity_<model> shows nodes, "
    "hetero_subgraphs_<model> subgraphs and cuts. '' writes nothing.",
    is_local=True,
)


class HeteroPlugin(VirtualPlugin):
    """Splits a model into subgraphs and loads each on its device.

    Streams and threads are properties of the devices; give them through DEVICE_PROPERTIES.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in VirtualPlugin.standard_properties
        if declared.key not in ("NUM_STREAMS", "INFERENCE_NUM_THREADS")
    )
    takes_mapped_constants: ClassVar[bool] = True
    divides_devices: ClassVar[bool] = True
    properties: ClassVar[Sequence[Property[Any]]] = (
        *VirtualPlugin.properties,
        AFFINITY,
        DUMP_GRAPH,
        *POLICY_PROPERTIES,
    )

    def import_network(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        keys = [declared.key for declared in (AFFINITY, *POLICY_PROPERTIES)]
        record.refuse_other_values(config, keys)
        devices = self._devices(config)
        division = read_division(blob, devices)
        division.model.name = record.name
        configs = {device: self.inner_config(device, config) for device in devices}
        networks: list[ExecutableNetwork] = []
        try:
            for index, piece in enumerate(division.cut.subgraphs):
                if piece.device not in configs:
                    raise BlobError(
                        f"subgraph {index} of the blob is for {piece.device}, which is not among "
                        f"{list(configs)}; import it on the devices that it was exported by",
                        device=config.device,
                    )
                values = {**configs[piece.device]}
                values.pop(STATE.key, None)  # the part's own say which are its
                part = blob.under(part_name(index))
                networks.append(self.core.import_part(part, piece.device, values))
                _refuse_other_ports(index, piece.model, networks[-1])
                _refuse_other_states(index, record.states, networks[-1])
            return self._network(division, division.model, networks, config)
        except BaseException:
            for loaded in networks:
                loaded.close()
            raise

    def _network(
        self,
        division: Division,
        original: Model,
        networks: Sequence[ExecutableNetwork],
        config: Configuration,
    ) -> HeteroNetwork:
        return HeteroNetwork(
            original,
            division.model,
            division.cut,
            networks,
            division.partition,
            config,
            self.core,
        )

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Return for each original node which device takes it, or each device's reason."""
        devices = self._devices(config)
        placing = self._place(model, devices, config)
        placing.model.dispose()
        answers: SupportMap = {}
        for node in placing.nodes:
            for name in node.origins:
                if node.name in placing.refused:
                    reasons = placing.refused[node.name].items()
                    text = "; ".join(f"{device}: {reason}" for device, reason in reasons)
                    answers[name] = Support(False, text)
                elif answers.get(name, Support(True)).supported:
                    placement = placing.placed[node.name]
                    answers[name] = Support(True, f"on {placement.device}, {placement.reason}")
        if not placing.refused and policy_of(config) != "PRIORITY":
            for subgraph in self._divide(model, devices, config).partition.subgraphs:
                for placed in subgraph.nodes:
                    answer = Support(True, f"on {subgraph.device}, {placed.reason}")
                    answers.update(dict.fromkeys(placed.original_nodes, answer))
        return answers

    def divide_network(self, model: Model, config: Configuration) -> Division:
        division = self._divide(model, self._devices(config), config)
        subgraph_signatures(division.model, division.cut, config[INPUT_SHAPES])
        return division

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        devices = self._devices(config)
        for device in devices:
            self.core.resolve_device(device)
        configs = {device: self.inner_config(device, config) for device in devices}
        division = self._divide(model, devices, config)
        shapes = subgraph_signatures(division.model, division.cut, config[INPUT_SHAPES])
        # A virtual device may load each part on another one.
        sharing = [device for device in devices if not self._is_virtual(device)]
        names, pairs = [value.name for value in model.inputs], find_pairs(model, config)
        inside = states_inside(division.cut, names, pairs, sharing)
        staying = state_locations(division.cut, names, pairs, sharing)
        locations = output_locations(division.cut, {**config[OUTPUT_LOCATION], **staying}, sharing)
        if model.is_disposable:  # then the pieces alone hold the weights, each until it is compiled
            for graph in (model.graph, division.model.graph):
                release_constants(graph)
        networks: list[ExecutableNetwork] = []
        loading: dict[str, Callable[[Model], ExecutableNetwork]] = {}
        try:
            with allowance_kept():
                told = zip(division.cut.subgraphs, shapes, locations, inside, strict=True)
                for piece, signatures, stays, states in told:
                    own, device = _values_of_part(signatures, stays, states), piece.device
                    if own:
                        load = self.core.loading_on(device, {**configs[device], **own})
                    elif device in loading:
                        load = loading[device]
                    else:
                        load = loading[device] = self.core.loading_on(device, configs[device])
                    piece.model.is_disposable = True
                    networks.append(load(piece.model))
            network = self._network(division, model, networks, config)
        except BaseException as error:
            for loaded in networks:
                loaded.close()
            if isinstance(error, UnsupportedOpError):
                raise error.told_to(f"{self.name}:{','.join(devices)}") from error
            raise
        logging.getLogger(f"aioinfer.{config.device}").info(
            "model %r is compiled for %s: %r", network.name, network.device, config
        )
        return network

    def _refusal(
        self,
        model: Model,
        nodes: Sequence[NodeOrigin],
        refused: Mapping[str, Mapping[str, str]],
        devices: Sequence[str],
        config: Configuration,
    ) -> UnsupportedOpError:
        wishes = wishes_of(nodes, config[AFFINITY], devices)
        if any(name in wishes for name in refused):
            way_out = "change the affinity that asks for the wrong device"
        else:
            way_out = self.advise(model, self._answers(model, devices, config))
        return refuse(nodes, refused, f"{self.name}:{','.join(devices)}", way_out)

    def _answers(
        self, model: Model, devices: Sequence[str], config: Configuration
    ) -> dict[str, SupportMap]:
        return {
            device: self.core.query_network(model, device, self.inner_config(device, config))
            for device in devices
        }

    def _tie_extensions(self, model: Model, devices: Sequence[str]) -> list[str]:
        """Have the devices' own extensions tell types; returns the operators that they compute."""
        rules = {device: self.core.type_rules_of(device) for device in devices}

        def rule_of(node: Node, opsets: Mapping[str, int]) -> NodeRule | None:
            return rules[str(node.affinity)](node, opsets)

        tell_types(model, rule_of, keeps_others=False)
        extensions = {device: self.core.extensions_of(device) for device in devices}
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

    def _is_virtual(self, device: str) -> bool:
        return self.core.device_configuration(device).knows(MULTI_DEVICE_PRIORITIES.key)

    def _devices(self, config: Configuration) -> list[str]:
        devices = self.devices_without_counts(config)
        if not devices:
            raise DeviceError(
                f"{self.name} needs devices: name them in the device, as in "
                f"'{self.name}:CUDA,CPU', or in MULTI_DEVICE_PRIORITIES"
            )
        for device in devices:
            if parse_device(device).name in HOLD_ONE:
                raise DeviceError(
                    f"{self.name} cannot hold {device}: what crosses between its devices belongs "
                    f"to one request; join requests around it: BATCH:{self.name}:CUDA,CPU(8)"
                )
        self.check_device_properties(config, devices)
        _refuse_request_properties(config)
        return devices

    def _place(self, model: Model, devices: Sequence[str], config: Configuration) -> _Placing:
        """Copy the model and decide for each of its nodes, by the types that its parts will have.

        What the file alone says of a value in between is none of them.
        """
        rules = {device: self.core.type_rules_of(device) for device in devices}
        rule_of = partial(_first_rule, rules, config[AFFINITY])
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
        wishes = wishes_of(nodes, config[AFFINITY], devices, inner)
        answers = self._answers(copied, devices, config)
        return _Placing(copied, nodes, wishes, answers, *place_nodes(nodes, wishes, answers))

    def _divide(self, model: Model, devices: Sequence[str], config: Configuration) -> Division:
        policy = policy_of(config)
        placing = self._place(model, devices, config)
        copied, nodes, placed = placing.model, placing.nodes, placing.placed
        if placing.refused:
            raise self._refusal(copied, nodes, placing.refused, devices, config)
        # Before the passes, so that none of them merges nodes of different devices.
        for node in copied.graph.nodes:
            _give(node, placed[node.name].device)
        kept_ops = self._tie_extensions(copied, devices)
        unfolded = {device: self._unfolded_ops(device) for device in devices}
        follow_users(copied.graph, unfolded, placing.wishes)
        passes = default_passes(kept_ops, is_wanted_by_user(unfolded), decomposes=False)
        whole, report = specialize_with_report(copied, {}, passes)
        copied.dispose()
        correct_graph_types(whole.graph)
        by_origin: dict[str, Placement] = {}
        for origin in nodes:
            for name in origin.origins:
                by_origin.setdefault(name, placed[origin.name])
        expected = None
        if policy != "PRIORITY":
            expected = self._follow_policy(policy, whole, placing, config, by_origin)
        names = [node.name for node in whole.graph.nodes]
        edges = node_edges(whole.graph)
        affinity = {node.name: str(node.affinity) for node in whole.graph.nodes}
        subgraphs = select_subgraphs(names, edges, affinity, devices)
        ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
        cut = cut_model(whole, ordered)
        partition = make_partition(
            whole, cut, by_origin, _main_names(report.removed_names, nodes), devices, expected
        )
        if config[DUMP_GRAPH]:
            dump_diagrams(partition, config[DUMP_GRAPH])
        return Division(whole, cut, partition)

    def _follow_policy(
        self,
        policy: str,
        whole: Model,
        placing: _Placing,
        config: Configuration,
        by_origin: dict[str, Placement],
    ) -> Expected:
        """Place the executed nodes anew; those that the user has placed stay where they are."""
        signatures = config[INPUT_SHAPES]
        shapes = static_shapes(whole, signatures[0]) if signatures else {}
        placements, expected = follow_policy(
            policy, whole.graph, placing.takers, list(placing.answers), config, shapes, self._fact
        )
        for node, placement in zip(whole.graph.nodes, placements, strict=True):
            _give(node, placement.device)
            for name in node.fused_from:
                is_asked_for = name in placing.wishes_of_origins
                reason = by_origin[name].reason if is_asked_for else placement.reason
                by_origin[name] = Placement(placement.device, reason)
        return expected

    def _fact(self, device: str, metric: str) -> Any:
        """Ask a device for a fact; None where it is not there, or does not say."""
        try:
            if metric in self.core.get_metric(device, "SUPPORTED_METRICS"):
                return self.core.get_metric(device, metric)
        except DeviceError:  # what answers queries without being there is an accelerator
            return "discrete" if metric == "DEVICE_TYPE" else None
        return None


@dataclass(frozen=True)
class _Placing:
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

    def takers(self, node: Node) -> frozenset[str]:
        """Return the devices that may run a node of the executed graph."""
        found = set(self.answers)
        for name in node.fused_from:
            wish = self.wishes_of_origins.get(name)
            missing = Support(False)
            found = {
                device
                for device in found
                if self.answers[device].get(name, missing).supported
                and (wish is None or wish.device == device)
            }
        return frozenset(found or {str(node.affinity)})


def _values_of_part(
    signatures: Any, stays: Mapping[str, str], states: Mapping[str, str]
) -> dict[str, Any]:
    """Return the properties of one subgraph that those of the others on its device are not."""
    values: dict[str, Any] = {}
    if signatures:
        values[INPUT_SHAPES.key] = signatures
    if states:
        values[STATE.key] = states
    kept = set(states.values())
    if stays.keys() - kept:
        values[OUTPUT_LOCATION.key] = {
            name: place for name, place in stays.items() if name not in kept
        }
    return values


def _give(node: Node, device: str) -> None:
    """Give a node, and the nodes in its bodies, to a device."""
    node.affinity = device
    for inner in (found for body in node.bodies() for found in all_nodes(body)):
        inner.affinity = device


def _refuse_other_ports(index: int, piece: Model, network: ExecutableNetwork) -> None:
    """Raise BlobError unless a part has the ports that the whole was cut at."""
    found = [port.name for port in (*network.model_inputs, *network.model_outputs)]
    if found != [value.name for value in (*piece.inputs, *piece.outputs)]:
        raise BlobError(
            f"the blob is damaged: subgraph {index} does not have the inputs and outputs of its "
            f"part of the whole; export it again"
        )


def _refuse_other_states(index: int, pairs: Mapping[str, str], network: ExecutableNetwork) -> None:
    """Raise BlobError if a part hands on what requests of the whole do not."""
    own = {} if network.states is None else network.states.named
    if not own.items() <= pairs.items():
        raise BlobError(
            f"the blob is damaged: subgraph {index} keeps the states {own}, and the whole "
            f"{dict(pairs)}; export it again"
        )


def _first_rule(
    rules: Mapping[str, TypeRuleOf],
    wishes: Mapping[str, str],
    node: Node,
    opsets: Mapping[str, int],
) -> NodeRule | None:
    """Return the rule by which a node's types are told before its device is known.

    That of the first device which has one. An operator of ONNX's own runs without one, too: of that
    only the first device, or the one that is asked for, counts.
    """
    wished = str(wishes.get(node.name) or node.affinity)
    devices = [wished] if wished in rules else list(rules)
    if not node.domain:
        devices = devices[:1]
    return next(filter(None, (rules[device](node, opsets) for device in devices)), None)


def _refuse_request_properties(config: Configuration) -> None:
    """Raise PropertyError for what only the whole can do, and one of its devices was to."""
    for device, values in config[DEVICE_PROPERTIES].items():
        for declared in REQUEST_PROPERTIES:
            if declared.key in values:
                raise PropertyError(
                    f"{config.device}: {declared.key} of {device} would say nothing, because "
                    f"requests come to the whole network; give it beside DEVICE_PROPERTIES",
                    declared.key,
                    config.device,
                    value=values[declared.key],
                )


def _main_names(removed: Sequence[str], nodes: Sequence[NodeOrigin]) -> list[str]:
    """Leave out what was in bodies: those are not placed on a device."""
    known = {name for node in nodes for name in node.origins}
    return [name for name in removed if name in known]
