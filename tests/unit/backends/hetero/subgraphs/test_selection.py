"""Selection and execution order, on graphs drawn above each test.

In the drawings `add@0` is a node and the number of its device; device 0 selects first. Constants,
graph inputs and graph outputs take no part, so they appear in the drawings (p, k, out) only where
they are the point of the test.
"""

import dataclasses
from itertools import pairwise

import pytest

from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import Subgraph, Trace, select_subgraphs
from aioinfer.errors import DeviceError, GraphError

SEEDS_NODES = [1, 2, 3, 4, 5, 6, 7]
SEEDS_EDGES = [(1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6), (6, 7)]
SEEDS_AFFINITY = dict.fromkeys(SEEDS_NODES, "A") | {4: "B"}


def parse(text: str, paths: str = "") -> tuple[list[str], list[tuple[str, str]], dict[str, str]]:
    """Read "add@0 sub@1" and "add>sub>reshape" into nodes, edges and affinity."""
    affinity = {name: f"MOCK.{number}" for name, number in (n.split("@") for n in text.split())}
    edges: list[tuple[str, str]] = []
    for path in paths.split():
        names = path.split(">")
        edges += pairwise(names)
    return list(affinity), edges, affinity


def cut(text: str, paths: str = "") -> tuple[str, str]:
    """Select, and show the subgraphs in order of selection and in order of execution."""
    nodes, edges, affinity = parse(text, paths)
    subgraphs = select_subgraphs(nodes, edges, affinity, sorted(set(affinity.values())))
    for subgraph in subgraphs:
        assert {affinity[node] for node in subgraph.nodes} == {subgraph.device}
    shown = [",".join(subgraph.nodes) for subgraph in subgraphs]
    run = [shown[index] for index in execution_order(subgraphs, edges, nodes)]
    return " | ".join(shown), " | ".join(run)


# The seeds' example. 4 is on the second device.
#
#            +-> 3 --+
#   1 -> 2 --+       +-> 5 -> 6 -> 7
#            +-> 4@1-+
def test_the_seeds_example_gives_the_seeds_steps_for_both_roots() -> None:
    trace: Trace = []
    select_subgraphs(SEEDS_NODES, SEEDS_EDGES, SEEDS_AFFINITY, ["A", "B"], trace)
    first_root = [
        ("root", 1),
        ("merge", 2),
        ("merge", 3),
        ("merge", 5),
        ("merge", 6),
        ("merge", 7),
        ("fail", 4),
        ("rollback", 7),
        ("rollback", 6),
        ("rollback", 5),
    ]
    second_root = [
        ("root", 5),
        ("merge", 6),
        ("merge", 7),
        ("merge", 3),
        ("merge", 2),
        ("fail", 4),
        ("rollback", 2),
    ]
    second_round = [("root", 1), ("merge", 2), ("fail", 3), ("fail", 4), ("select", (1, 2))]
    second_device = [("root", 4), ("fail", 5), ("fail", 2), ("select", (4,))]
    assert trace == [
        *first_root,
        *second_root,
        ("select", (3, 5, 6, 7)),
        *second_round,
        *second_device,
    ]


def test_the_seeds_example_gives_the_seeds_subgraphs() -> None:
    subgraphs = select_subgraphs(SEEDS_NODES, SEEDS_EDGES, SEEDS_AFFINITY, ["A", "B"])
    assert subgraphs == [
        Subgraph("A", (3, 5, 6, 7)),
        Subgraph("A", (1, 2)),
        Subgraph("B", (4,)),
    ]
    assert execution_order(subgraphs, SEEDS_EDGES, SEEDS_NODES) == [1, 2, 0]


# A round is logged in full although its candidates are kept from the round before:
#
#   a@0 -> b@1 -> c@0 -> d@0
def test_the_trace_repeats_a_candidate_in_every_round() -> None:
    nodes, edges, affinity = parse("a@0 b@1 c@0 d@0", "a>b>c>d")
    trace: Trace = []
    select_subgraphs(nodes, edges, affinity, ["MOCK.0", "MOCK.1"], trace)
    assert trace == [
        *[("root", "a"), ("fail", "b")],
        *[("root", "c"), ("merge", "d"), ("fail", "b"), ("select", ("c", "d"))],
        *[("root", "a"), ("fail", "b"), ("select", ("a",))],
        *[("root", "b"), ("fail", "c"), ("fail", "a"), ("select", ("b",))],
    ]


# Two subgraphs that would feed each other, had the first not become one node:
#
#   a1@0 --> a2@0        b2@1 --> b1@1
#   a1@0 --> b1@1        b2@1 --> a2@0
def test_the_butterfly_is_cut_so_that_it_can_be_scheduled() -> None:
    assert cut("a1@0 b2@1 b1@1 a2@0", "a1>a2 b2>b1 a1>b1 b2>a2") == (
        "a1,a2 | b2 | b1",
        "b2 | a1,a2 | b1",
    )


#   p -> add@0 -> sub@1 -> reshape@0
def test_a_node_of_another_device_separates_two_subgraphs() -> None:
    assert cut("add@0 sub@1 reshape@0", "add>sub>reshape") == (
        "add | reshape | sub",
        "add | sub | reshape",
    )


#   p -> add@0 -> sub@0 -> reshape@0 -> out@1     (the output takes no part)
def test_one_device_gives_one_subgraph_wherever_the_output_is_wanted() -> None:
    assert cut("add@0 sub@0 reshape@0", "add>sub>reshape") == ("add,sub,reshape",) * 2


#   p@0 -> add@1 -> sub@2 -> reshape@3            (the input takes no part)
def test_an_input_on_a_device_of_its_own_adds_no_subgraph() -> None:
    assert cut("add@1 sub@2 reshape@3", "add>sub>reshape") == ("add | sub | reshape",) * 2


#   A@0 -> B@1 -> C@0 -> D@1
def test_selection_goes_by_device_and_execution_by_dependence() -> None:
    assert cut("A@0 B@1 C@0 D@1", "A>B>C>D") == ("A | C | B | D", "A | B | C | D")


#   a1@0 -> a2@0
#   b1@0 -> b2@0
def test_unconnected_chains_on_one_device_are_two_subgraphs() -> None:
    assert cut("a1@0 b1@0 a2@0 b2@0", "a1>a2 b1>b2") == ("a1,a2 | b1,b2",) * 2


#          +-> sub1@0
#   add@0 -+
#          +-> sub2@0
def test_siblings_are_joined_through_their_producer() -> None:
    assert cut("add@0 sub1@0 sub2@0", "add>sub1 add>sub2") == ("add,sub1,sub2",) * 2


#   p -> add1@0 --> add2@0 --> sub@1 --+
#           |                          +--> add3@0 --> reshape@0
#           +--------------------------+
def test_a_diamond_over_two_devices_is_cut_before_it_closes() -> None:
    paths = "add1>add2>sub>add3 add1>add3>reshape"
    assert cut("add1@0 add2@0 sub@1 add3@0 reshape@0", paths) == (
        "add1,add2 | add3,reshape | sub",
        "add1,add2 | sub | add3,reshape",
    )


#    +------------------------------------+
#    |                                    v
#   a1@0 --> b1@1 --> a2@0 --> b2@1 --> a3@0
def test_a_shortcut_over_other_devices_is_never_taken() -> None:
    assert cut("a1@0 b1@1 a2@0 b2@1 a3@0", "a1>b1>a2>b2>a3 a1>a3") == (
        "a1 | a2 | a3 | b1 | b2",
        "a1 | b1 | a2 | b2 | a3",
    )


#   p1 -> add1@0 -> add2@1        p2    (unused)
def test_an_unused_input_adds_no_subgraph() -> None:
    assert cut("add1@0 add2@1", "add1>add2") == ("add1 | add2",) * 2


#          +-> X@0 -> out2
#   A@0 ---+
#          +-> B@1 -> C@0 -> out1
def test_a_side_branch_stays_with_its_producer() -> None:
    assert cut("A@0 X@0 B@1 C@0", "A>X A>B>C") == ("A,X | C | B", "A,X | B | C")


#          +-> X@0
#   A@0 ---+-> B@1 -> out
#          +-> C@0
def test_both_branches_of_a_producer_join_it() -> None:
    assert cut("A@0 X@0 B@1 C@0", "A>X A>B A>C") == ("A,X,C | B",) * 2


#   p, k -> A@0 ------> B@1, k ------> C@0, k     (one shared constant glues nothing together)
def test_a_constant_that_all_share_connects_nothing() -> None:
    assert cut("A@0 B@1 C@0", "A>B>C") == ("A | C | B", "A | B | C")


#   p -> A@0 -> B@1 --+
#                     +--> C@0 -> out1
#        k -> X@0 ----+
#              +-> out2
def test_a_branch_of_constants_joins_its_consumer() -> None:
    assert cut("A@0 B@1 X@0 C@0", "A>B>C X>C") == ("X,C | A | B", "A | B | X,C")


#   p -> A@0 -> B@1           k -> X@0 -> out2
def test_a_branch_of_constants_without_a_consumer_stays_alone() -> None:
    assert cut("A@0 X@0 B@1", "A>B") == ("A | X | B",) * 2


#          +-> X@0
#   A@0 ---+                           k2 -> Z@0 -> out
#          +-> B@1 -> C@0
def test_what_depends_on_nothing_runs_in_the_order_of_the_nodes() -> None:
    assert cut("A@0 X@0 B@1 C@0 Z@0", "A>X A>B>C") == ("A,X | C | Z | B", "A,X | B | C | Z")


#          +-> X@0            +-> C@0 <- p2
#   A@0 ---+                  |
#          +-> B@1 -----------+-> F@0
def test_two_consumers_of_another_device_are_not_joined_through_it() -> None:
    assert cut("A@0 X@0 B@1 C@0 F@0", "A>X A>B B>C B>F") == (
        "A,X | C | F | B",
        "A,X | B | C | F",
    )


#   read@0 -> add@0 --+-> write@0   (state)
#                     +-> out
def test_a_state_is_read_and_written_in_one_subgraph() -> None:
    assert cut("read@0 add@0 write@0", "read>add>write") == ("read,add,write",) * 2


#   p -> transpose@1 -> reshape@1 -> gather@1      (their shape constants, @0, take no part)
def test_constants_on_another_device_split_nothing() -> None:
    chain = "transpose@1 reshape@1 gather@1"
    assert cut(chain, "transpose>reshape>gather") == ("transpose,reshape,gather",) * 2


#   a@0 -> b@1 -> c@0        d@0
def test_the_first_of_equally_large_candidates_is_selected() -> None:
    assert cut("a@0 b@1 c@0 d@0", "a>b>c")[0] == "a | c | d | b"


#   a@0 -> b@1 -> c@0 -> d@1
def test_the_priority_and_not_the_name_says_which_device_selects_first() -> None:
    nodes, edges, affinity = parse("a@0 b@1 c@0 d@1", "a>b>c>d")
    subgraphs = select_subgraphs(nodes, edges, affinity, ["MOCK.1", "MOCK.0"])
    assert [subgraph.nodes for subgraph in subgraphs] == [("b",), ("d",), ("a",), ("c",)]


def test_the_same_edge_twice_is_as_good_as_once() -> None:
    assert cut("a@0 b@1 c@0", "a>b a>b b>c b>c")[0] == "a | c | b"


def test_a_graph_without_nodes_has_no_subgraphs() -> None:
    assert select_subgraphs([], [], {}, ["A"]) == []


def test_a_subgraph_cannot_be_changed() -> None:
    (subgraph,) = select_subgraphs(["a"], [], {"a": "A"}, ["A"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        subgraph.device = "B"  # type: ignore[misc]


def test_a_doubled_node_is_refused() -> None:
    with pytest.raises(
        GraphError, match=r"'b' is given twice, at places 1 and 2 .* every node once"
    ):
        select_subgraphs(["a", "b", "b"], [], {"a": "A", "b": "A"}, ["A"])


@pytest.mark.parametrize("edge", [("k", "a"), ("a", "k")])
def test_an_edge_with_an_unknown_end_is_refused(edge: tuple[str, str]) -> None:
    message = f"edge '{edge[0]}' -> '{edge[1]}' names 'k', .* the 1 nodes; .* leave out the edge"
    with pytest.raises(GraphError, match=message):
        select_subgraphs(["a"], [edge], {"a": "A"}, ["A"])


@pytest.mark.parametrize("edge", [("b", "a"), ("a", "a")])
def test_an_edge_against_the_order_is_refused(edge: tuple[str, str]) -> None:
    message = f"edge '{edge[0]}' -> '{edge[1]}' runs against the order .* sort the nodes"
    with pytest.raises(GraphError, match=message):
        select_subgraphs(["a", "b"], [edge], {"a": "A", "b": "A"}, ["A"])


def test_a_node_without_an_affinity_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"'b' has no affinity; give it one of .* \(A, B\)"):
        select_subgraphs(["a", "b"], [], {"a": "A"}, ["A", "B"])


def test_a_node_on_a_device_outside_the_list_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"'b' has the affinity 'C', .* \(A, B\); add it"):
        select_subgraphs(["a", "b"], [], {"a": "A", "b": "C"}, ["A", "B"])
