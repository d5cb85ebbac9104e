"""The execution order by itself; most orders are tested with the selection that they belong to."""

import pytest

from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import Subgraph
from aioinfer.errors import GraphError


#   a@0 -> b@1 -> d@0        c@1
def test_the_order_is_topological_and_then_by_the_first_node() -> None:
    subgraphs = [Subgraph("MOCK.0", (node,)) for node in "ad"]
    subgraphs += [Subgraph("MOCK.1", (node,)) for node in "cb"]
    assert execution_order(subgraphs, [("a", "b"), ("b", "d")], "abcd") == [0, 3, 2, 1]


def test_no_subgraphs_have_an_empty_order() -> None:
    assert execution_order([], [], []) == []


# Two subgraphs that feed each other; select_subgraphs does not give them.
#
#   a1@0 --> a2@0        b2@1 --> b1@1
#   a1@0 --> b1@1        b2@1 --> a2@0
def test_subgraphs_that_feed_each_other_have_no_execution_order() -> None:
    edges = [("a1", "a2"), ("b2", "b1"), ("a1", "b1"), ("b2", "a2")]
    cyclic = [Subgraph("MOCK.0", ("a1", "a2")), Subgraph("MOCK.1", ("b2", "b1"))]
    with pytest.raises(GraphError, match=r"subgraphs \[0, 1\] cannot be ordered"):
        execution_order(cyclic, edges, ["a1", "b2", "b1", "a2"])


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([("a",)], "node 'b' is in no subgraph"),
        ([("a", "b"), ("b",)], "node 'b' is twice in the subgraphs, in 0 and in 1"),
        ([("a", "b", "c")], "node 'c' of subgraph 0 is not a node of the graph"),
        ([("a", "b"), ()], "subgraph 1 on A has no node"),
    ],
)
def test_an_execution_order_needs_every_node_once(
    pieces: list[tuple[str, ...]], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        execution_order([Subgraph("A", piece) for piece in pieces], [("a", "b")], ["a", "b"])


def test_an_execution_order_refuses_an_edge_with_an_unknown_end() -> None:
    with pytest.raises(GraphError, match="edge 'a' -> 'k' names 'k'"):
        execution_order([Subgraph("A", ("a",))], [("a", "k")], ["a"])
