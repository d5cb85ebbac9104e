"""``aioinfer properties``: what can be set and asked, device by device, as the plugins declare it.

The facts about networks are those of a network of one node, which is loaded for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import AioInferError, DeviceError
from ..runtime.devices.core import Core
from ..runtime.graph import DType, Graph, Model, Node, TensorType, Value
from ..runtime.properties.properties import Metric, Property
from .console import make_console, print_table

__all__ = ["DeviceKeys", "MetricRow", "PropertyRow", "device_keys", "run_properties"]

# These say what the tables say.
LISTS = ("SUPPORTED_METRICS", "SUPPORTED_CONFIG_KEYS", "SUPPORTED_PROPERTIES")


@dataclass(frozen=True)
class PropertyRow:
    """A key that can be set; ``values`` are the words in which its parser refuses others."""

    key: str
    type: str
    default: Any
    values: str
    only_at_load: bool
    doc: str


@dataclass(frozen=True)
class MetricRow:
    """A fact, what it says now, and of what type that is: '' where it cannot be read."""

    key: str
    type: str
    value: Any
    doc: str


@dataclass(frozen=True)
class DeviceKeys:
    """What a device declares; ``missing`` says why it, or the facts of its networks, are not there.

    A plugin that answers without a device tells what it declares even so.
    """

    device: str
    missing: str
    properties: tuple[PropertyRow, ...] = ()
    metrics: tuple[MetricRow, ...] = ()
    network_metrics: tuple[MetricRow, ...] = ()


def run_properties(device: str | None, *, is_json: bool) -> int:
    """Print the keys of one device, or of every installed plugin's; always 0."""
    with Core() as core:
        names = core.plugin_names if device is None else [device]
        found = [device_keys(core, name) for name in names]
    if is_json:
        print(json.dumps({"devices": [asdict(keys) for keys in found]}, indent=2, default=str))
    else:
        for keys in found:
            _print_tables(keys)
    return 0


def device_keys(core: Core, device: str) -> DeviceKeys:
    """Collect what a device declares; raises DeviceError if there is no plugin of that name."""
    name, _, device_id = device.partition(".")
    missing = core.why_missing(name) or ""
    try:
        plugin = core.plugin_of(device)
    except DeviceError:
        if name not in core.plugin_names or not missing:
            raise
        return DeviceKeys(device, missing)
    of_network: list[MetricRow] = []
    if not missing:
        devices = "" if plugin.device_ids() else ":REFERENCE"
        try:
            with core.load_network(_one_node(), device + devices) as network:
                of_network = _metric_rows(network.all_metrics().values(), {})
        except AioInferError as error:
            missing = str(error)
    options = {"DEVICE_ID": device_id} if device_id else {}
    return DeviceKeys(
        device,
        missing,
        tuple(_property_row(declared) for declared in plugin.all_properties()),
        tuple(_metric_rows(plugin.all_metrics().values(), options)),
        tuple(of_network),
    )


def _one_node() -> Model:
    value = Value("x", TensorType(DType.FLOAT32, ("n",)))
    graph = Graph("one node", [value])
    graph.append(Node("Relu", [value], [Value("y", value.type)], name="relu"))
    graph.outputs = next(iter(graph.nodes)).outputs
    return Model(graph, {"": 21})


def _property_row(declared: Property[Any]) -> PropertyRow:
    values = _values(declared)
    hints = getattr(declared.parse, "__annotations__", {})
    hint = hints.get("return", type(declared.default))
    kind = (hint if isinstance(hint, str) else hint.__name__).partition("[")[0]
    default = declared.default
    for word in re.findall(r"[A-Z]{2,}", values) if kind == "int" else ():
        if declared.parse(word) == declared.default:
            default = word  # NUM_STREAMS is AUTO, not -1
    return PropertyRow(
        declared.key,
        kind,
        _plain(default),
        values,
        declared.only_at_load,
        declared.doc,
    )


def _values(declared: Property[Any]) -> str:
    try:
        declared.parse(object())
    except ValueError as error:
        return re.sub(r",? (is|are) wanted", "", str(error))
    except TypeError:  # a parser that says nothing of its own, such as int
        pass
    return ""


def _metric_rows(metrics: Iterable[Metric], options: Mapping[str, Any]) -> list[MetricRow]:
    rows = []
    for metric in metrics:
        try:
            value = metric.read(options)
        except AioInferError:  # nothing to tell without a device
            rows.append(MetricRow(metric.key, "", None, metric.doc))
        else:
            rows.append(MetricRow(metric.key, type(value).__name__, _plain(value), metric.doc))
    return rows


def _plain(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _plain(item) for key, item in value.items()}


def _words(value: Any) -> str:
    return "" if value is None else str(value) or "''"


def _print_tables(keys: DeviceKeys) -> None:
    console = make_console()
    if keys.properties:
        print_table(
            console,
            f"{keys.device}: properties; * belongs to one network, so set_config refuses it",
            ["property", "type", "default", "values", "what it does"],
            [
                (
                    row.key + "*" * row.only_at_load,
                    row.type,
                    _words(row.default),
                    row.values,
                    row.doc,
                )
                for row in keys.properties
            ],
            fold=["default", "values", "what it does"],
        )
    for whose, rows in (("", keys.metrics), (" of a network", keys.network_metrics)):
        if rows:
            print_table(
                console,
                f"{keys.device}: metrics{whose}",
                ["metric", "type", "now", "what it tells"],
                [
                    (row.key, row.type, "" if row.key in LISTS else _words(row.value), row.doc)
                    for row in rows
                ],
                fold=["now", "what it tells"],
            )
    if keys.missing:
        console.print(keys.missing + "\n", soft_wrap=True)
