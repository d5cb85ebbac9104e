"""Serve the metrics of all networks to Prometheus, and read them as it would.

Two networks in one process answer more requests than they have room for at a time. Meanwhile a
small HTTP server on this machine gives what Prometheus scrapes; the program scrapes itself, shows
how long requests took and how much of that they waited, and ends. Exit code 1 if what was scraped
is not what was asked.

A service that has an ASGI application already mounts the same registry there instead:
``app.mount("/metrics", prometheus_client.make_asgi_app(registry))``.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer
from aioinfer.prometheus import NetworkCollector

MODEL = Path(__file__).parent / "digits" / "digits.onnx"
REQUEST_COUNTS = {"wide": 200, "narrow": 50}
"""How many requests come at once, to each network."""


def scrape(port: int) -> dict[str, Metric]:
    """Read and parse the page as Prometheus does, from another thread than the event loop's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], family: str, sample: str, **labels: str) -> float:
    """Return the one sample of this name that has these labels."""
    wanted = labels.items()
    found = [
        one.value
        for one in families[family].samples
        if one.name == sample and wanted <= one.labels.items()
    ]
    return found[0] if found else 0.0


def table_of(families: dict[str, Metric]) -> Table:
    """One row for each network: its requests, and the means of its histograms."""
    table = Table(title="what Prometheus sees", box=SIMPLE)
    for column in ("network", "finished", "mean latency", "of that without a slot"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for network in REQUEST_COUNTS:
        means = []
        for family in ("aioinfer_request_duration_seconds", "aioinfer_slot_wait_seconds"):
            total_s = value(families, family, f"{family}_sum", network=network)
            count = value(families, family, f"{family}_count", network=network)
            means.append(f"{total_s / max(1.0, count) * 1e3:.2f} ms")
        table.add_row(network, f"{finished(families, network):.0f}", *means)
    return table


def finished(families: dict[str, Metric], network: str) -> float:
    """Return how many requests of a network have a result."""
    name = "aioinfer_requests"
    return value(families, name, f"{name}_total", network=network, outcome="finished")


async def main() -> int:
    console = Console()
    image = np.zeros((1, 1, 8, 8), np.float32)
    async with aioinfer.Core() as core:
        registry = CollectorRegistry()
        registry.register(NetworkCollector(core))
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        try:
            console.print(f"metrics are on http://127.0.0.1:{server.server_port}/metrics")
            wide = await core.load_network_async(MODEL, "REFERENCE.0", name="wide")
            narrow = await core.load_network_async(
                MODEL, "REFERENCE.1", {"NUM_STREAMS": 1}, name="narrow"
            )
            async with asyncio.TaskGroup() as tasks:
                for network in (wide, narrow):
                    for _ in range(REQUEST_COUNTS[network.name]):
                        tasks.create_task(network.infer(image))
            families = await asyncio.to_thread(scrape, server.server_port)
        finally:
            await asyncio.to_thread(server.shutdown)
            server.server_close()
            await asyncio.to_thread(thread.join)
    console.print(*(f"{family.name} ({family.type})" for family in families.values()), sep="\n")
    console.print(table_of(families))
    seen = {network: finished(families, network) for network in REQUEST_COUNTS}
    if seen != REQUEST_COUNTS:
        console.print(f"{REQUEST_COUNTS} were asked, and {seen} are shown", style="red")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
