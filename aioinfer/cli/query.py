"""``aioinfer query``: which device runs which node, why, and what a partition looks like."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import NotSupportedError, UnsupportedOpError
from ..runtime.devices.core import Core
from ..runtime.devices.plugin import Division
from ..runtime.graph import Model
from ..runtime.passes import SupportMap
from ..runtime.tensors.tensor import ports_of
from .benchmarking.report import json_value
from .console import make_console, print_table
from .device_config import device_config
from .shapes import choose_shapes, parse_shapes
from .subgraph_files import save_subgraphs

__all__ = ["run_query"]


def run_query(parsed: argparse.Namespace) -> int:
    """Print the answer for each node, and the partition; 1 if a node is not supported."""
    config = device_config(parsed.config, parsed.affinity)
    with Core() as core:
        model = core.read_model(parsed.model)
        if parsed.shape is not None or parsed.b is not None:
            _set_shapes(model, parsed.shape, parsed.b)
        support = core.query_network(model, parsed.d, config)
        is_supported = all(answer.supported for answer in support.values())
        division = _divided(core, parsed, model, config)
        written = [] if division is None else _write_files(parsed, division)
        if parsed.json:
            document = _document(parsed.d, model, support, division)
            if division is not None and parsed.trace:
                document["selection_trace"] = division.selection_trace()
            print(json.dumps(document, indent=2))
        else:
            console = make_console()
            _print_answers(console, parsed.d, model, support, division)
            if division is not None and parsed.trace:
                console.print()
                console.print(division.selection_trace(), soft_wrap=True, markup=False, end="")
            for path in written:
                console.print(f"wrote {path}", soft_wrap=True)
    return 0 if is_supported else 1


def _set_shapes(model: Model, text: str | None, batch: int | None) -> None:
    asked = parse_shapes(text) if text is not None else {}
    model.reshape(choose_shapes(ports_of(model.inputs), asked, batch).shapes)


def _divided(
    core: Core, parsed: argparse.Namespace, model: Model, config: Mapping[str, Any]
) -> Division | None:
    """Cut the model; None where a node is refused, or for a device that runs it whole."""
    try:
        return core.divide_network(model, parsed.d, config)
    except UnsupportedOpError:
        return None
    except NotSupportedError:
        if parsed.dot or parsed.svg or parsed.save_subgraphs or parsed.trace:
            raise
        return None


def _print_answers(
    console: Console,
    device: str,
    model: Model,
    support: SupportMap,
    division: Division | None,
) -> None:
    if division is not None:
        console.print(division.explain(), soft_wrap=True)
        return
    rows = []
    for node in model.graph.nodes:
        answer = support[node.name]
        rows.append((node.name, node.op, "yes" if answer.supported else "NO", answer.reason))
    print_table(
        console,
        f"{model.name} on {device}",
        ["node", "operator", "supported", "reason"],
        rows,
        fold=["node", "operator", "reason"],
    )
    refused = sum(not answer.supported for answer in support.values())
    verdict = f"{refused} of {len(support)} nodes cannot run" if refused else "every node can run"
    console.print(f"{verdict} on {device}")


def _document(
    device: str, model: Model, support: SupportMap, division: Division | None
) -> dict[str, Any]:
    return {
        "model": model.name,
        "device": device,
        "supported": all(answer.supported for answer in support.values()),
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "supported": support[node.name].supported,
                "reason": support[node.name].reason,
            }
            for node in model.graph.nodes
        ],
        "partition": None if division is None else _partition_document(division),
    }


def _partition_document(division: Division) -> dict[str, Any]:
    partition = division.partition
    expected = partition.expectation()
    return {
        "devices": list(partition.devices),
        "subgraphs": [
            {
                "index": subgraph.index,
                "device": subgraph.device,
                "needs": list(subgraph.needs),
                "inputs": list(subgraph.inputs),
                "outputs": list(subgraph.outputs),
                "nodes": [json_value(node._asdict()) for node in subgraph.nodes],
            }
            for subgraph in partition.subgraphs
        ],
        "cuts": [json_value(cut._asdict()) for cut in partition.cuts],
        "removed_nodes": list(partition.removed_nodes),
        "expected": None if expected is None else json_value(dataclasses.asdict(expected)),
    }


def _write_files(parsed: argparse.Namespace, division: Division) -> list[Path]:
    written = []
    if parsed.dot is not None:
        parsed.dot.write_text(division.diagram("dot"), encoding="utf-8")
        written.append(parsed.dot)
    if parsed.svg is not None:
        parsed.svg.write_text(division.diagram("svg"), encoding="utf-8")
        written.append(parsed.svg)
    if parsed.save_subgraphs is not None:
        written += save_subgraphs(division.subgraph_models(), parsed.save_subgraphs)
    return written
