"""The selection's text: the example of HETERO's design overview, and what a reader needs beyond it.

``selection_example.md`` is the example as that document prints it: the first round of the first
plugin, what is repeated, and the final result. Its "There are nodes to merge **end**" lacks a "no".
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from aioinfer.backends.hetero.subgraphs.selection_trace import trace_selection

NODES = [1, 2, 3, 4, 5, 6, 7]
EDGES = [(1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6), (6, 7)]
PLUGINS = ["First plugin", "Second plugin"]
AFFINITY = dict.fromkeys(NODES, PLUGINS[0]) | {4: PLUGINS[1]}

EXAMPLE = (Path(__file__).parent / "selection_example.md").read_text()


# The example. 4 is on the second plugin.
#
#            +-> 3 --+
#   1 -> 2 --+       +-> 5 -> 6 -> 7
#            +-> 4@1-+
def test_the_example_is_told_in_the_words_of_its_document() -> None:
    text = trace_selection(NODES, EDGES, AFFINITY, PLUGINS)
    expected = EXAMPLE.replace("There are nodes to merge", "There are no nodes to merge")
    assert expected != EXAMPLE
    steps, result = expected.split("The final result is:\n")
    assert text.startswith("Plugin First plugin\n\n" + steps)
    assert text.endswith("\nThe final result is:\n" + result)


def test_the_rounds_that_the_document_leaves_out_are_told_too() -> None:
    text = trace_selection(NODES, EDGES, AFFINITY, PLUGINS)
    repeated = text.partition("Repeat previous steps with remaining nodes [1,2]\n\n")[2]
    assert repeated.startswith("Possible roots: [1,2]\n1. Select root [1]\n")
    assert "* There is one subgraph, [1,2], and it is selected.\n\nPlugin Second plugin" in repeated
    assert "Possible roots: [4]\n1. Select root [4]\n" in repeated


# Four pieces of the first device, each cut off by a node of the second; only the two largest differ
# in size. What no round changes is not told again.
#
#   a -> b -> x@1 -> c -> y@1 -> d -> z@1 -> e
def test_what_grows_as_before_is_told_once() -> None:
    nodes = list("abxcydze")
    edges = list(pairwise(nodes))
    affinity = {node: "B" if node in "xyz" else "A" for node in nodes}
    text = trace_selection(nodes, edges, affinity, ["A", "B"])
    assert text.count("Select root [c]") == 1
    assert "Subgraphs that grow as in the last round: [c], [d], [e]\n" in text
    assert "Subgraphs that grow as in the last round: [e]\n" in text
    assert text.endswith("The final result is:\n* A: [a,b], [c], [d], [e]\n* B: [x], [y], [z]\n")


# Two nodes between: b and c, of which c alone was rejected when d had to go.
#
#   a -> b@1 -> d
#    \-> c@1 -/
def test_several_nodes_between_are_all_named() -> None:
    nodes, edges = list("abcd"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    affinity = {"a": "A", "b": "B", "c": "B", "d": "A"}
    text = trace_selection(nodes, edges, affinity, ["A", "B"])
    assert "1. Select root [a]\n    * Subgraph: [a]\n    * Rejected: []" in text
    assert "* A: [a], [d]\n* B: [b], [c]\n" in text


def test_a_long_list_is_told_by_its_ends() -> None:
    nodes = list(range(40))
    edges = list(pairwise(nodes))
    text = trace_selection(nodes, edges, dict.fromkeys(nodes, "A"), ["A"])
    assert "Subgraph: [0,1,2,3,4,5,6,7,(24 more),32,33,34,35,36,37,38,39]\n" in text
    assert max(map(len, text.splitlines())) < 120


def test_a_graph_without_nodes_has_no_steps() -> None:
    assert trace_selection([], [], {}, ["A"]) == "The final result is:\n"
