"""How the time of HETERO's subgraph selection grows with the graph.

    python benchmarks selection

Two graphs (layers: 1 to 3 predecessors among the 20 nodes before; chain: with links that skip up to
8 nodes), cut over two devices: runs of 50 nodes on each in turn, or a device at random for each
node. Random affinity is the hard case, since it gives very many small subgraphs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import select_subgraphs

DEVICES = ["MOCK.0", "MOCK.1"]
RUN_LENGTH = 50

Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One measured case; the times are the fastest of the repeats."""

    graph: str
    affinity: str
    node_count: int
    edge_count: int
    subgraph_count: int
    largest_node_count: int
    selection_s: float
    execution_order_s: float


def layers(chance: random.Random, count: int) -> Edges:
    edges: Edges = []
    for node in range(1, count):
        before = range(max(0, node - 20), node)
        producers = chance.sample(before, min(node, chance.randint(1, 3)))
        edges += [(producer, node) for producer in producers]
    return edges


def chain(chance: random.Random, count: int) -> Edges:
    links = [(node - 1, node) for node in range(1, count)]
    skipping = [node for node in range(8, count) if chance.random() < 0.3]
    return links + [(node - chance.randint(2, 8), node) for node in skipping]


def runs(chance: random.Random, count: int) -> dict[int, str]:
    return {node: DEVICES[node // RUN_LENGTH % len(DEVICES)] for node in range(count)}


def mixed(chance: random.Random, count: int) -> dict[int, str]:
    return {node: chance.choice(DEVICES) for node in range(count)}


GRAPHS: dict[str, Callable[[random.Random, int], Edges]] = {"layers": layers, "chain": chain}
AFFINITIES: dict[str, Callable[[random.Random, int], dict[int, str]]] = {
    f"runs {RUN_LENGTH}": runs,
    "random": mixed,
}


def measure(graph: str, affinity: str, count: int, seed: int, repeats: int) -> Row:
    chance = random.Random(seed)
    nodes = range(count)
    edges = GRAPHS[graph](chance, count)
    devices = AFFINITIES[affinity](chance, count)
    selection_s = order_s = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        subgraphs = select_subgraphs(nodes, edges, devices, DEVICES)
        selected = time.perf_counter()
        execution_order(subgraphs, edges, nodes)
        order_s = min(order_s, time.perf_counter() - selected)
        selection_s = min(selection_s, selected - start)
    return Row(
        graph=graph,
        affinity=affinity,
        node_count=count,
        edge_count=len(edges),
        subgraph_count=len(subgraphs),
        largest_node_count=max(len(subgraph.nodes) for subgraph in subgraphs),
        selection_s=selection_s,
        execution_order_s=order_s,
    )


def measure_all(counts: list[int], seed: int, repeats: int) -> Iterator[Row]:
    for graph in GRAPHS:
        for affinity in AFFINITIES:
            for count in counts:
                yield measure(graph, affinity, count, seed, repeats)


def table_of(rows: list[Row]) -> Table:
    table = Table(title="HETERO: subgraph selection over two devices", box=SIMPLE)
    for title in ("graph", "affinity"):
        table.add_column(title)
    for title in ("nodes", "edges", "subgraphs", "largest", "select ms", "order ms"):
        table.add_column(title, justify="right")
    for row in rows:
        counts = (row.node_count, row.edge_count, row.subgraph_count, row.largest_node_count)
        times_s = (row.selection_s, row.execution_order_s)
        table.add_row(
            row.graph,
            row.affinity,
            *(f"{count:,}" for count in counts),
            *(f"{time_s * 1000:,.1f}" for time_s in times_s),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[1000, 2000, 5000, 10000], metavar="COUNT"
    )
    parser.add_argument("--repeats", type=int, default=1, help="measure so often, keep the fastest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if min(arguments.nodes) < 1 or arguments.repeats < 1:
        parser.error("--nodes and --repeats take numbers from 1 on")
    rows = list(measure_all(arguments.nodes, arguments.seed, arguments.repeats))
    Console().print(table_of(rows))
    write_rows(
        arguments.json,
        "selection",
        [asdict(row) for row in rows],
        seed=arguments.seed,
        repeats=arguments.repeats,
    )
