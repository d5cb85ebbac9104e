"""What a benchmark prints about a model, a network and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ...runtime.devices.virtual_plugin import DEVICE_PROPERTIES
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.properties.properties import INPUT_SHAPES
from ...runtime.tensors.tensor import Port
from ..console import print_table
from .percentiles import LatencySummary, Window
from .report import BenchmarkReport, json_value
from .summed_node_times import NodeTime

__all__ = [
    "print_network_properties",
    "print_node_times",
    "print_ports",
    "print_results",
    "print_stages",
]

VALUE_CHARACTERS = 200  # an AFFINITY may name thousands of nodes


def print_ports(console: Console, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Print a model's inputs and outputs."""
    rows = [("input", port.name, str(port.type or "not known")) for port in inputs]
    rows += [("output", port.name, str(port.type or "not known")) for port in outputs]
    print_table(console, "Inputs and outputs", ["", "name", "type"], rows, fold=["name", "type"])


def print_network_properties(console: Console, network: ExecutableNetwork) -> None:
    """Print every property of a network; of its devices, those that differ from it."""
    own = {key: network.get_config(key) for key in network.get_metric("SUPPORTED_CONFIG_KEYS")}
    rows = [(key, _value_text(value)) for key, value in own.items()]
    if DEVICE_PROPERTIES.key in network.get_metric("SUPPORTED_METRICS"):
        for device, values in network.get_metric(DEVICE_PROPERTIES.key).items():
            rows += [
                (f"{device}: {key}", _value_text(value))
                for key, value in values.items()
                if key != INPUT_SHAPES.key and (key not in own or own[key] != value)
            ]
    print_table(
        console,
        f"Properties of {network.name} on {network.device}",
        ["property", "value"],
        rows,
        fold=["property", "value"],
    )


def print_results(console: Console, report: BenchmarkReport) -> None:
    """Print count, duration, latencies and throughput."""
    batch = f" of batch {report.batch}" if report.batch and report.batch > 1 else ""
    console.print("Results", style="bold")
    console.print(f"  Count:        {len(report.latencies_ms)} inferences{batch}")
    console.print(f"  Duration:     {report.duration_ms or 0.0:.2f} ms")
    if report.latency is None:
        console.print("  Latency:      nothing was measured")
        return
    console.print("  Latency:")
    for label, value_ms in latency_lines(report.latency):
        console.print(f"    {label + ':':<11} {value_ms:.3f} ms")
    console.print(f"  Throughput:   {report.throughput_fps or 0.0:.2f} FPS")


def latency_lines(latency: LatencySummary) -> list[tuple[str, float]]:
    """Label the numbers of a summary."""
    chosen = "Median" if latency.percentile == 50 else f"p{latency.percentile}"
    return [
        (chosen, latency.chosen_ms),
        ("Average", latency.average_ms),
        ("Min", latency.min_ms),
        ("Max", latency.max_ms),
        ("p50", latency.p50_ms),
        ("p90", latency.p90_ms),
        ("p99", latency.p99_ms),
    ]


def print_stages(console: Console, window: Window) -> None:
    """Print how long each stage took and waited, and how busy its executor was with all stages."""
    rows = [
        (
            stage.stage,
            stage.executor,
            str(stage.count),
            f"{stage.mean_service_s * 1e3:.3f}",
            f"{stage.service.p99_s * 1e3:.3f}",
            f"{stage.mean_queue_s * 1e3:.3f}",
            f"{window.busy_shares.get(stage.executor, 0.0):.0%}",
        )
        for stage in window.stages
    ]
    print_table(
        console,
        "Stages",
        ["stage", "executor", ">runs", ">mean ms", ">p99 ms", ">waited ms", ">busy"],
        rows,
        fold=["stage", "executor"],
    )


def print_node_times(console: Console, nodes: Sequence[NodeTime]) -> None:
    """Print what computed each node and its mean time, slowest first, and the total."""
    rows = [
        (node.name, node.op, node.implementation, f"{node.mean_ms:.3f}", f"{node.share:.1%}")
        for node in nodes
    ]
    total_ms = sum(node.mean_ms for node in nodes)
    rows.append(("all nodes", "", "", f"{total_ms:.3f}", ""))
    print_table(
        console,
        "Nodes, slowest first; mean over the last run of each request",
        ["node", "operator", "implementation", ">mean ms", ">share"],
        rows,
        fold=["node", "operator", "implementation"],
    )


def _value_text(value: object) -> str:
    text = str(json_value(value))
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}..."
