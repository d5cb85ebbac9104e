"""The HETERO plugin: one model over several devices, each node where it was asked for or fits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from ...errors import BlobError, DeviceError, PropertyError, UnsupportedOpError
from ...runtime.blobs.network_record import NetworkRecord
from ...runtime.blobs.reader import Blob
from ...runtime.devices.device_name import HOLD_ONE, parse_device
from ...runtime.devices.virtual_plugin import (
    DEVICE_PROPERTIES,
    MULTI_DEVICE_PRIORITIES,
    VirtualPlugin,
)
from ...runtime.graph import Model
from ...runtime.graph.stand_ins import release_constants
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.passes import Support, SupportMap
from ...runtime.properties.properties import (
    INLINE_THRESHOLD_US,
    INPUT_SHAPES,
    OUTPUT_LOCATION,
    REQUEST_PROPERTIES,
    STATE,
    Configuration,
    Property,
    parse_text,
)
from .diagrams.dump import dump_diagrams
from .divider import ModelDivider
from .division import Division
from .division_record import part_name, read_division
from .executable_network import HeteroNetwork
from .policies.policy import POLICY_PROPERTIES, policy_of
from .subgraphs.locations import output_locations, state_locations, states_inside
from .subgraphs.signatures import subgraph_signatures

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

    Streams and threads are properties of the devices; give them through DEVICE_PROPERTIES. Requests
    go from thread to thread, so there is no INLINE_THRESHOLD_US, of the whole or of its devices.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in VirtualPlugin.standard_properties
        if declared.key not in ("NUM_STREAMS", "INFERENCE_NUM_THREADS", INLINE_THRESHOLD_US.key)
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
        divider = self._divider(self._devices(config), config)
        placing = divider.place(model)
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
            for subgraph in _divide(divider, model).partition.subgraphs:
                for placed in subgraph.nodes:
                    answer = Support(True, f"on {subgraph.device}, {placed.reason}")
                    answers.update(dict.fromkeys(placed.original_nodes, answer))
        return answers

    def divide_network(self, model: Model, config: Configuration) -> Division:
        division = _divide(self._divider(self._devices(config), config), model)
        subgraph_signatures(division.model, division.cut, config[INPUT_SHAPES])
        return division

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        devices = self._devices(config)
        for device in devices:
            self.core.resolve_device(device)
        divider = self._divider(devices, config)
        configs, division = divider.device_configs, _divide(divider, model)
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
        except UnsupportedOpError as error:
            raise error.told_to(divider.name) from error
        logging.getLogger(f"aioinfer.{config.device}").info(
            "model %r is compiled for %s: %r", network.name, network.device, config
        )
        return network

    def inner_config(self, device: str, config: Configuration) -> dict[str, Any]:
        """As for any device inside; no caller has a thread for the runs of a part to stay on."""
        values = super().inner_config(device, config)
        if self.core.device_configuration(device).knows(INLINE_THRESHOLD_US.key):
            values[INLINE_THRESHOLD_US.key] = 0
        return values

    def _refuse_key_of_devices(self, key: str) -> None:
        if key == INLINE_THRESHOLD_US.key:
            raise PropertyError(
                f"{self.name} has no {key}, and its devices cannot be given one: {_NOT_INLINE}; "
                f"leave it out, or load the model on one device",
                key,
                self.name,
            )
        super()._refuse_key_of_devices(key)

    def _divider(self, devices: Sequence[str], config: Configuration) -> ModelDivider:
        configs = {device: self.inner_config(device, config) for device in devices}
        name = f"{self.name}:{','.join(devices)}"
        return ModelDivider(self.core, name, config, config[AFFINITY], configs, self.advise)

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
        _refuse_inline_runs(config)
        return devices


_NOT_INLINE = "a request goes from device to device, and none of that on its caller's thread"


def _divide(divider: ModelDivider, model: Model) -> Division:
    division, folder = divider.divide(model), divider.config[DUMP_GRAPH]
    if folder:
        dump_diagrams(division.partition, folder)
    return division


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


def _refuse_inline_runs(config: Configuration) -> None:
    """Raise PropertyError for a threshold other than 0, which is what each device gets."""
    for device, values in config[DEVICE_PROPERTIES].items():
        given = values.get(INLINE_THRESHOLD_US.key, 0)
        if INLINE_THRESHOLD_US.value_of(given, device):
            raise PropertyError(
                f"{config.device}: {INLINE_THRESHOLD_US.key} of {device} would say nothing: "
                f"{_NOT_INLINE}; leave it out",
                INLINE_THRESHOLD_US.key,
                config.device,
                value=given,
            )
