"""Which device gets which nodes: detours, measured times, memory, and branches."""

from __future__ import annotations

import pytest

from aioinfer.backends.hetero.policies.balance import (
    BalanceDevice,
    BalanceNode,
    balance,
    node_seconds,
)
from aioinfer.backends.hetero.policies.branches import place_branches
from aioinfer.runtime.costs import DeviceSpeed, NodeCost

SPEED = DeviceSpeed(1.0, 1e9, 1.0, 0.0, 0.0)  # a second for each operation and each carried byte
ALL = frozenset("AB")
A, B = (BalanceDevice(name, SPEED) for name in "AB")


def node(name: str, flop: float, devices: frozenset[str] = ALL, **others: object) -> BalanceNode:
    values: dict[str, object] = {"known_s": {}, "carried_bytes": 1, **others}
    return BalanceNode(name, NodeCost(flop, 0.0), devices, **values)  # type: ignore[arg-type]


def test_two_stages_share_the_work() -> None:
    found = balance([node(str(n), 10.0) for n in range(4)], [0, 1, 1, 1, 0], [A, B])
    assert found is not None
    assert found.affinity == ("A", "A", "B", "B")
    assert [stage.seconds for stage in found.stages] == [21.0, 21.0]
    assert [stage.carry_s for stage in found.stages] == [1.0, 1.0]
    assert found.loads_s == {"A": 21.0, "B": 21.0}
    assert found.bottleneck_s == 21.0


def test_measured_times_go_before_estimates() -> None:
    slow = node("0", 10.0, known_s={"A": 35.0, "B": 35.0})
    nodes = [slow, *[node(str(n), 10.0) for n in range(1, 4)]]
    found = balance(nodes, [0, 1, 1, 1, 0], [A, B])
    assert found is not None
    assert found.affinity == ("A", "B", "B", "B")
    assert node_seconds(slow, A) == 35.0


# A takes nothing of 2, and B is fifty times as slow: A has both ends of the chain, with a detour.
#
#   0 -> 1 -> 2@B -> 3 -> 4
def test_a_refused_node_is_a_detour_where_two_stages_would_be_slower() -> None:
    slow = BalanceDevice("B", DeviceSpeed(0.02, 1e9, 1.0, 0.0, 0.0))
    nodes = [node(str(n), 10.0) for n in range(5)]
    nodes[2] = node("2", 1.0, frozenset("B"))
    found = balance(nodes, [0, 1, 1, 1, 1, 0], [A, slow])
    assert found is not None
    assert found.affinity == ("A", "A", "B", "A", "A")
    (stage,) = found.stages
    assert (stage.device, stage.node_count, stage.detour_count) == ("A", 5, 1)
    assert found.loads_s == {"A": 41.0, "B": 51.0}


def test_a_refused_node_needs_no_detour_where_stages_fit_around_it() -> None:
    nodes = [node("0", 10.0), node("1", 10.0, frozenset("B"))]
    found = balance(nodes, [0, 1, 0], [A, B])
    assert found is not None
    assert found.affinity == ("A", "B")
    assert sum(stage.detour_count for stage in found.stages) == 0


def test_constants_that_fit_nowhere_have_no_cut() -> None:
    nodes = [node("0", 1.0, weights=(("k", 9),))]
    small = [BalanceDevice(name, SPEED, 8) for name in "AB"]
    assert balance(nodes, [0, 0], small) is None
    found = balance(nodes, [0, 0], [small[0], B])
    assert found is not None
    assert found.affinity == ("B",)
    assert found.stages[0].weight_bytes == 9


# A diamond.
#
#        +-> 1 -> 2 -+
#   0 ---+           +-> 5
#        +-> 3 -> 4 -+
DIAMOND = {(0, 1): 1, (1, 2): 1, (0, 3): 1, (3, 4): 1, (2, 5): 1, (4, 5): 1}


def test_the_branches_of_a_diamond_go_to_two_devices_where_that_pays() -> None:
    nodes = [node("0", 1.0), *[node(str(n), 50.0) for n in range(1, 5)], node("5", 1.0)]
    found = place_branches(nodes, DIAMOND, [A, B])
    left, right = found.affinity[1:3], found.affinity[3:5]
    assert len(set(left)) == len(set(right)) == 1
    assert set(left) != set(right)
    assert found.alone_s == 202.0
    assert found.seconds == pytest.approx(1 + 2 + 100 + 1)  # to B, which joins
    assert sum(found.loads_s.values()) == 202.0


def test_the_branches_of_a_diamond_stay_together_where_carrying_costs_more() -> None:
    nodes = [node(str(n), 1.0) for n in range(6)]
    found = place_branches(nodes, dict.fromkeys(DIAMOND, 100), [A, B])
    assert set(found.affinity) == {"A"}
    assert found.seconds == found.alone_s == 6.0


def test_a_chain_stays_on_the_fastest_device() -> None:
    fast = BalanceDevice("B", DeviceSpeed(10.0, 1e9, 1.0, 0.0, 0.0))
    found = place_branches(
        [node(str(n), 10.0) for n in range(3)], {(0, 1): 1, (1, 2): 1}, [A, fast]
    )
    assert found.affinity == ("B", "B", "B")


def test_branches_respect_what_a_device_refuses() -> None:
    nodes = [node("0", 1.0), node("1", 1.0, frozenset("B")), node("2", 1.0, frozenset("A"))]
    found = place_branches(nodes, {(0, 1): 1, (1, 2): 1}, [A, B])
    assert found.affinity[1:] == ("B", "A")
    assert found.alone_s is None


def test_a_graph_without_nodes_takes_no_time() -> None:
    assert place_branches([], {}, [A, B]).seconds == 0.0
