"""Which values stay on the device between subgraphs, and for the caller; `@` is a node's device."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aioinfer.backends.hetero.subgraphs.cutting import CutModel, cut_model, node_edges
from aioinfer.backends.hetero.subgraphs.locations import output_locations, state_locations
from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import select_subgraphs
from unit.backends.hetero.small_graphs import affinity, model

DIAMOND = """
    a@0 = Relu(p)
    b@0 = Neg(a)
    c@1 = Abs(a)
    d@0 = Add(b, c)
    """


def cut(text: str, outputs: str) -> CutModel:
    whole, devices = model(text, outputs), affinity(text)
    names = [node.name for node in whole.graph.nodes]
    edges = node_edges(whole.graph)
    subgraphs = select_subgraphs(names, edges, devices, sorted(set(devices.values())))
    ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
    return cut_model(whole, ordered)


@pytest.mark.parametrize(
    ("outputs", "wanted", "stays"),
    [
        ("d", {}, [{"b"}, set(), set()]),  # a is for 1 as well
        ("d", {"d": "DEVICE"}, [{"b"}, set(), {"d"}]),
        ("d b", {}, [set(), set(), set()]),  # the caller wants b on the host
        ("d b", {"b": "DEVICE"}, [{"b"}, set(), set()]),
        ("d a", {"a": "DEVICE"}, [{"b"}, set(), set()]),  # 1 takes it from the host anyway
        ("d c", {"c": "DEVICE", "d": "HOST"}, [{"b"}, set(), set()]),  # so does 0
    ],
)
def test_what_all_take_on_one_device_stays_there(
    outputs: str, wanted: Mapping[str, str], stays: list[set[str]]
) -> None:
    pieces = cut(DIAMOND, outputs)
    devices = {piece.device for piece in pieces.subgraphs}
    assert [set(names) for names in output_locations(pieces, wanted, devices)] == stays


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("a@0 = Relu(p); b@0 = Neg(a)", True),
        ("a@0 = Relu(p); b@1 = Neg(a)", False),
        ("a@0 = Relu(p); c@1 = Abs(a); b@0 = Neg(c)", True),
        ("a@0 = Relu(p); c@1 = Abs(p); b@0 = Add(a, c)", False),  # 1 reads p as well
    ],
)
def test_a_state_stays_where_those_who_read_it_are(text: str, stays: bool) -> None:
    pieces = cut(text.replace("; ", "\n"), "b")
    devices = {piece.device for piece in pieces.subgraphs}
    wanted = {"b": "DEVICE"} if stays else {}
    assert state_locations(pieces, ["p"], {"p": "b"}, devices) == wanted
    assert state_locations(pieces, ["p"], {"p": "b"}, ()) == {}
    assert state_locations(pieces, ["p"], {}, devices) == {}


def test_nothing_crosses_within_a_device_that_may_be_several() -> None:
    assert output_locations(cut(DIAMOND, "d"), {"d": "DEVICE"}, ()) == [{}, {}, {"d": "DEVICE"}]
