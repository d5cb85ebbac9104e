"""Which devices would run a model that those which were asked do not: for errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Model
from ..graph.traversal import all_nodes
from ..passes import SupportMap
from ..type_inference.rules import STANDARD_DOMAINS

__all__ = ["LAST_RESORT", "device_advice"]

LAST_RESORT = "REFERENCE"
"""On every machine, and with practically all of ONNX."""


def device_advice(model: Model, answers: Mapping[str, SupportMap]) -> str:
    """Return on which of these devices every node would run, or what none of them has.

    answers: by device, the preferred one first, by names of nodes of the file.
    """
    names = dict.fromkeys(name for support in answers.values() for name in support)
    missing, devices = set(names), []
    for device, support in answers.items():
        taken = {name for name in missing if name in support and support[name].supported}
        if taken:
            devices.append(device)
            missing -= taken
    if not missing:
        return f"load it on {_listed(devices)!r}"
    nodes = [node for node in model.graph.nodes if missing.intersection(node.fused_from)]
    inner = (item for node in nodes for body in node.bodies() for item in all_nodes(body))
    foreign = [node for node in (*nodes, *inner) if node.domain not in STANDARD_DOMAINS]
    ops = ", ".join(dict.fromkeys(node.op for node in foreign or nodes))
    if LAST_RESORT not in devices:
        devices.append(LAST_RESORT)
    return (
        f"none of these devices has {ops}: give it to {LAST_RESORT} with Core.add_extension, and "
        f"load the model on {_listed(devices)!r}"
    )


def _listed(devices: list[str]) -> str:
    return devices[0] if len(devices) == 1 else f"HETERO:{','.join(devices)}"
