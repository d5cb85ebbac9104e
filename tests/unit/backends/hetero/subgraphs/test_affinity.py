"""Which node goes where: a pure decision, tested without models."""

from __future__ import annotations

import pytest

from aioinfer.backends.hetero.subgraphs.affinity import (
    NodeOrigin,
    Placement,
    Wish,
    place_nodes,
    refuse,
    wishes_of,
)
from aioinfer.errors import DeviceError, PropertyError
from aioinfer.runtime.passes import Support

DEVICES = ["CUDA", "CPU"]
YES = Support(True)


def node(name: str, *origins: str, affinity: str | None = None) -> NodeOrigin:
    return NodeOrigin(name, "Relu", origins or (name,), affinity)


def no(reason: str) -> Support:
    return Support(False, reason)


def test_the_first_device_that_supports_a_node_gets_it() -> None:
    answers = {"CUDA": {"a": YES, "b": no("no kernel")}, "CPU": {"a": YES, "b": YES}}
    placed, refused = place_nodes([node("a"), node("b")], {}, answers)
    assert placed == {
        "a": Placement("CUDA", "first device in the list that supports it"),
        "b": Placement(
            "CPU", "first device in the list that supports it (refused by CUDA: no kernel)"
        ),
    }
    assert refused == {}


def test_a_wish_goes_before_the_order_and_the_others_say_that_they_had_none() -> None:
    answers = {"CUDA": {"a": YES, "b": YES}, "CPU": {"a": YES, "b": YES}}
    wishes = wishes_of([node("a", affinity="CPU"), node("b")], {}, DEVICES)
    placed, _ = place_nodes([node("a"), node("b")], wishes, answers)
    assert placed["a"] == Placement("CPU", "asked for by the node's affinity")
    assert placed["b"].reason == "no affinity given; first device in the list that supports it"


def test_the_property_goes_before_the_affinity_saved_with_a_node() -> None:
    wishes = wishes_of([node("a", affinity="CPU")], {"a": "CUDA"}, DEVICES)
    assert wishes == {"a": Wish("CUDA", "asked for by AFFINITY")}


def test_a_node_of_the_file_names_all_nodes_that_it_became() -> None:
    nodes = [node("softmax/Exp", "softmax"), node("softmax/Div", "softmax"), node("b")]
    wishes = wishes_of(nodes, {"softmax": "CPU", "softmax/Div": "CUDA"}, DEVICES)
    assert {name: wish.device for name, wish in wishes.items()} == {
        "softmax/Exp": "CPU",
        "softmax/Div": "CUDA",
    }


def test_nodes_that_became_one_cannot_be_apart() -> None:
    with pytest.raises(PropertyError, match=r"'ab' stands for nodes of the file .*'a': 'CPU'"):
        wishes_of([node("ab", "a", "b")], {"a": "CPU", "b": "CUDA"}, DEVICES)


def test_an_unknown_node_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PropertyError, match=r"no node 'conv_l'; did you mean 'conv_1'\?"):
        wishes_of([node("conv_1")], {"conv_l": "CPU"}, DEVICES)


def test_a_node_of_a_body_has_the_place_of_the_node_around_it() -> None:
    with pytest.raises(PropertyError, match="give the affinity to the node around it"):
        wishes_of([node("if")], {"if/then/Relu": "CPU"}, DEVICES, ["if/then/Relu"])


@pytest.mark.parametrize("where", ["property", "node"])
def test_a_device_that_is_not_listed_is_refused(where: str) -> None:
    given = {"a": "CPUU"} if where == "property" else {}
    saved = "CPUU" if where == "node" else None
    with pytest.raises(DeviceError, match=r"node 'a' has the affinity 'CPUU' .*mean 'CPU'"):
        wishes_of([node("a", affinity=saved)], given, DEVICES)


def test_a_device_that_refuses_what_was_asked_of_it_gives_its_reason() -> None:
    answers = {"CUDA": {"a": no("no kernel for int64")}, "CPU": {"a": YES}}
    wishes = {"a": Wish("CUDA", "asked for by AFFINITY")}
    placed, refused = place_nodes([node("a")], wishes, answers)
    assert placed == {}
    assert refused == {"a": {"CUDA": "no kernel for int64 (asked for by AFFINITY)"}}


def test_one_error_names_all_nodes_that_nobody_takes_and_every_reason() -> None:
    nodes = [node("a"), node("b"), node("c")]
    answers = {
        "CUDA": {"a": no("too new"), "b": no("too old"), "c": YES},
        "CPU": {"a": no("too odd")},
    }
    _, refused = place_nodes(nodes, {}, answers)
    error = refuse(nodes, refused, "HETERO:CUDA,CPU", "do this")
    assert error.node == "a"
    assert "HETERO:CUDA,CPU cannot run Relu (node 'a'): CUDA: too new; CPU: too odd" in str(error)
    assert "nor Relu (node 'b'): CUDA: too old; CPU: the device gave no answer for it" in str(error)
    assert str(error).endswith("; do this")


def test_an_error_about_very_many_nodes_stays_readable() -> None:
    nodes = [node(f"n{index}") for index in range(500)]
    refused = {item.name: {"CPU": "no"} for item in nodes}
    text = str(refuse(nodes, refused, "HETERO:CPU", "do this"))
    assert "nor 490 more nodes" in text
    assert len(text) < 1000


def test_a_node_made_of_several_is_supported_if_all_are() -> None:
    answers = {"CUDA": {"a": YES, "b": no("no kernel")}, "CPU": {"a": YES, "b": YES}}
    placed, _ = place_nodes([node("ab", "a", "b")], {}, answers)
    assert placed["ab"].device == "CPU"
