import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Graph, Node, Value
from aioinfer.runtime.passes import Support, map_to_original

YES = Support(True)
NO = Support(False, "no kernel for float64")


def _graph(**origins: tuple[str, ...]) -> Graph:
    graph = Graph("g", [Value("x")])
    for name, names in origins.items():
        graph.append(Node("Relu", graph.inputs, [Value(f"v_{name}")], name=name, fused_from=names))
    return graph


def test_a_node_is_supported_if_every_node_that_stands_for_it_is() -> None:
    graph = _graph(a=("first", "second"), b=("second",))
    answers = map_to_original(["first", "second"], graph, (), {"a": YES, "b": YES})
    assert answers == {"first": YES, "second": YES}


def test_a_node_in_a_supported_and_an_unsupported_one_is_unsupported_with_the_reason() -> None:
    graph = _graph(a=("first", "second"), b=("second",))
    answers = map_to_original(["first", "second"], graph, (), {"a": YES, "b": NO})
    assert answers["first"] == YES
    assert answers["second"] == Support(False, "no kernel for float64 (it is part of Relu 'b')")


def test_what_computes_a_node_is_told_by_the_first_that_stands_for_it() -> None:
    graph = _graph(a=("first",), b=("first", "second"), c=("second",))
    by_numpy = Support(True, "", "numpy")
    answers = map_to_original(["first", "second"], graph, (), {"a": YES, "b": by_numpy, "c": YES})
    assert answers == {"first": by_numpy, "second": by_numpy}
    refused = map_to_original(["first", "second"], graph, (), {"a": by_numpy, "b": NO, "c": YES})
    assert not refused["first"].implementation


def test_the_reason_is_given_as_it_is_for_a_node_that_was_not_rewritten() -> None:
    assert map_to_original(["a"], _graph(a=("a",)), (), {"a": NO}) == {"a": NO}


def test_a_removed_node_is_supported() -> None:
    assert map_to_original(["gone"], _graph(), ("gone",), {}) == {"gone": YES}


def test_a_name_both_removed_and_carried_follows_its_carrier() -> None:
    answers = map_to_original(["a"], _graph(b=("a",)), ("a",), {"b": NO})
    assert not answers["a"].supported


def test_a_node_without_an_answer_is_unsupported() -> None:
    answers = map_to_original(["a"], _graph(a=("a",)), (), {})
    assert answers["a"] == Support(False, "the device gave no answer for it")


def test_a_node_that_nobody_accounts_for_is_an_error() -> None:
    with pytest.raises(GraphError, match=r"'lost' is not in the rewritten graph"):
        map_to_original(["lost"], _graph(a=("a",)), (), {"a": YES})
