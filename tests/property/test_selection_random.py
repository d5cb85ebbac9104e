"""The selection equals a literal slow version of itself, on random graphs."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import Subgraph, Trace, select_subgraphs
from exhaustive import all_but

DEVICES = ["A", "B", "C"]

Edges = list[tuple[int, int]]
Graph = tuple[list[int], Edges, dict[int, str]]  # nodes, edges, affinity


# The slow version: no bit masks, no stack, no cursors, and nothing kept. In every round the closure
# is searched for anew in the contracted graph and every candidate grows anew.


def slow_select(
    nodes: Sequence[int],
    edges: Edges,
    affinity: Mapping[int, str],
    priority: Sequence[str],
    trace: Trace,
) -> list[Subgraph[int]]:
    near = {
        member: sorted(lower for upper, lower in edges if upper == member)
        + sorted(upper for upper, lower in edges if lower == member)
        for member in nodes
    }
    subgraphs: list[Subgraph[int]] = []
    for device in priority:
        while True:
            finished = {node for subgraph in subgraphs for node in subgraph.nodes}
            free = [n for n in nodes if affinity[n] == device and n not in finished]
            if not free:
                break
            reachable = slow_closure(nodes, edges, subgraphs)
            candidates: list[list[int]] = []
            for root in free:
                if not any(root in candidate for candidate in candidates):
                    candidates.append(slow_grow(root, near, set(free), reachable, trace))
            winner = max(candidates, key=len)  # the first of the largest
            subgraphs.append(Subgraph(device, tuple(sorted(winner))))
            trace.append(("select", subgraphs[-1].nodes))
    return subgraphs


def slow_closure(
    nodes: Sequence[int], edges: Edges, subgraphs: Iterable[Subgraph[int]]
) -> dict[int, set[int]]:
    """What each node reaches, if one can walk from any node of a finished subgraph to any other."""
    steps: dict[int, set[int]] = {node: set() for node in nodes}
    for producer, consumer in edges:
        steps[producer].add(consumer)
    for subgraph in subgraphs:
        for node in subgraph.nodes:
            steps[node] |= set(subgraph.nodes)
    reachable: dict[int, set[int]] = {}
    for node in nodes:
        reachable[node] = set()
        todo = list(steps[node])
        while todo:
            reached = todo.pop()
            if reached not in reachable[node]:
                reachable[node].add(reached)
                todo += steps[reached] - reachable[node]
    return reachable


def slow_grow(
    root: int,
    near: Mapping[int, list[int]],
    free: set[int],
    reachable: Mapping[int, set[int]],
    trace: Trace,
) -> list[int]:
    members, rejected = [root], set[int]()
    trace.append(("root", root))
    while True:
        tried = [n for member in reversed(members) for n in near[member]]
        candidate = next((n for n in tried if n not in members and n not in rejected), None)
        if candidate is None:
            return members
        if candidate in free:
            members.append(candidate)
            trace.append(("merge", candidate))
        else:
            rejected.add(candidate)
            trace.append(("fail", candidate))
        while any(
            reachable[between] & set(members) and any(between in reachable[m] for m in members)
            for between in rejected
        ):
            rejected.add(members[-1])
            trace.append(("rollback", members.pop()))


def assert_like_the_slow_version(
    nodes: Sequence[int], edges: Edges, affinity: Mapping[int, str]
) -> None:
    trace: Trace = []
    expected_trace: Trace = []
    subgraphs = select_subgraphs(nodes, edges, affinity, DEVICES)
    assert subgraphs == slow_select(nodes, edges, affinity, DEVICES, expected_trace)
    assert subgraphs == select_subgraphs(nodes, edges, affinity, DEVICES, trace)
    assert trace == expected_trace


def assert_a_partition_without_cycles(
    subgraphs: list[Subgraph[int]],
    nodes: Sequence[int],
    edges: Edges,
    affinity: Mapping[int, str],
) -> None:
    assert sorted(node for subgraph in subgraphs for node in subgraph.nodes) == list(nodes)
    for subgraph in subgraphs:
        assert {affinity[node] for node in subgraph.nodes} == {subgraph.device}
        assert list(subgraph.nodes) == sorted(subgraph.nodes)
        assert_connected(subgraph, edges)
    order = execution_order(subgraphs, edges, nodes)
    assert sorted(order) == list(range(len(subgraphs)))
    turn = {node: turn for turn, index in enumerate(order) for node in subgraphs[index].nodes}
    assert all(turn[producer] <= turn[consumer] for producer, consumer in edges)


def assert_connected(subgraph: Subgraph[int], edges: Edges) -> None:
    inner = [edge for edge in edges if set(edge) <= set(subgraph.nodes)]
    reached = {subgraph.nodes[0]}
    for _ in subgraph.nodes:
        reached |= {node for edge in inner if reached & set(edge) for node in edge}
    assert reached == set(subgraph.nodes)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = list(range(draw(st.integers(2, 13))))
    pairs = [(upper, lower) for lower in nodes for upper in range(lower)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    devices = DEVICES[: draw(st.integers(1, 3))]
    return nodes, edges, {node: draw(st.sampled_from(devices)) for node in nodes}


@given(graphs())
def test_small_graphs_are_cut_like_by_the_slow_version(graph: Graph) -> None:
    assert_like_the_slow_version(*graph)


@given(graphs())
def test_every_node_runs_once_and_nothing_runs_before_its_inputs(graph: Graph) -> None:
    nodes, edges, affinity = graph
    subgraphs = select_subgraphs(nodes, edges, affinity, DEVICES)
    assert_a_partition_without_cycles(subgraphs, nodes, edges, affinity)


# After {0,1,3} is finished, the candidate of root 4 is no longer {3,4,5} but {4,5,8}. It covers 8,
# whose own candidate {8,9} has not changed and must go. B has 2, 6 and 7.
#
#   0 --> 1 --> 2@B --> 4 ----------> 8 --> 9
#   |                   |             ^     ^
#   |                   v             |     |
#   +---> 3 ----------> 5 --> 7@B ----|-----+
#         |                           |
#         +-----------> 6@B ----------+
def test_a_root_that_another_candidate_comes_to_cover_is_a_root_no_more() -> None:
    paths = [(0, 1, 2, 4, 8, 9), (0, 3, 5, 7, 9), (3, 6, 8), (4, 5)]
    edges = [edge for path in paths for edge in pairwise(path)]
    affinity = {node: "B" if node in (2, 6, 7) else "A" for node in range(10)}
    assert_like_the_slow_version(range(10), edges, affinity)


# Larger graphs, on which most candidates of a round are kept from the round before.


def layered(chance: random.Random, count: int) -> Edges:
    """Give each node 1 to 3 predecessors among the 20 nodes before it."""
    edges: Edges = []
    for node in range(1, count):
        before = range(max(0, node - 20), node)
        edges += [(u, node) for u in chance.sample(before, min(node, chance.randint(1, 3)))]
    return edges


def chain(chance: random.Random, count: int) -> Edges:
    """Make a chain with links that skip up to 8 nodes."""
    edges = [(node - 1, node) for node in range(1, count)]
    skips = {
        (max(0, n - chance.randint(2, 8)), n) for n in range(2, count) if chance.random() < 0.4
    }
    return edges + sorted(skips)


def scattered(chance: random.Random, count: int) -> Edges:
    """Make few edges of any length, so that there are unconnected parts."""
    pairs = {tuple(sorted(chance.sample(range(count), 2))) for _ in range(count + count // 4)}
    return sorted((upper, lower) for upper, lower in pairs)


def runs(chance: random.Random, count: int) -> dict[int, str]:
    length = chance.randint(3, 15)
    return {node: DEVICES[node // length % 2] for node in range(count)}


def mixed(chance: random.Random, count: int) -> dict[int, str]:
    devices = DEVICES[: chance.randint(2, 3)]
    return {node: chance.choice(devices) for node in range(count)}


def mostly_one(chance: random.Random, count: int) -> dict[int, str]:
    return {node: "A" if chance.random() < 0.9 else chance.choice("BC") for node in range(count)}


@pytest.mark.parametrize("place", [runs, mixed, mostly_one])
@pytest.mark.parametrize("connect", [layered, chain, scattered])
@pytest.mark.parametrize("seed", all_but([1], range(4)))
def test_large_graphs_are_cut_like_by_the_slow_version(
    connect: Callable[[random.Random, int], Edges],
    place: Callable[[random.Random, int], dict[int, str]],
    seed: int,
) -> None:
    chance = random.Random(seed)
    count = chance.randint(60, 200)
    nodes, edges, affinity = list(range(count)), connect(chance, count), place(chance, count)
    assert_like_the_slow_version(nodes, edges, affinity)
    subgraphs = select_subgraphs(nodes, edges, affinity, DEVICES)
    assert_a_partition_without_cycles(subgraphs, nodes, edges, affinity)
