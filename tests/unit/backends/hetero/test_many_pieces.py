"""A model in thousands of pieces: what each costs a load, and what is not done for it again."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from onnx import parser

import aioinfer
from unit.backends.hetero.small_graphs import affinity, graph

TWO_REFERENCES = "HETERO:REFERENCE.0,REFERENCE.1"


def _load_calls(core: aioinfer.Core, device: str, piece_count: int, rows: str = "n") -> int:
    """Count the calls and resumptions of Python functions that a load of a chain makes."""
    ops = [("Relu", "Neg")[place % 2] for place in range(piece_count)]
    lines = [f"v{place + 1} = {op}(v{place})" for place, op in enumerate(ops)]
    text = (
        f"chain (float[{rows}, 4] v0) => (float[{rows}, 4] v{piece_count}) {{ {' '.join(lines)} }}"
    )
    model = core.read_model(
        parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}').SerializeToString()
    )
    for place, node in enumerate(model.graph.nodes):
        node.affinity = device.partition(":")[2].split(",")[place % 2]
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        network = core.load_network(model, device)
    finally:
        sys.setprofile(None)
    assert network.get_metric("NUMBER_OF_SUBGRAPHS") == piece_count
    network.close()
    return count


@pytest.mark.parametrize(
    ("device", "rows", "most"),
    [
        (TWO_REFERENCES, "n", 540),
        ("HETERO:CPU,REFERENCE", "n", 635),
        (TWO_REFERENCES, "2", 585),
        ("HETERO:CPU,REFERENCE", "2", 645),
    ],
)
def test_a_piece_more_costs_a_load_few_calls(
    core: aioinfer.Core, device: str, rows: str, most: int
) -> None:
    _load_calls(core, device, 4, rows)
    calls = [_load_calls(core, device, count, rows) for count in (4, 54)]
    assert calls[1] - calls[0] <= 50 * most


def test_pieces_of_a_clean_whole_are_clean_and_those_that_a_policy_brings_together_are_not(
    core: aioinfer.Core,
) -> None:
    chain = "a@0 = Relu(p)\nb@1 = Neg(a)\nc@0 = Exp(b)"
    config = {"AFFINITY": affinity(chain, "REFERENCE")}
    division = core.divide_network(graph(chain, "c"), TWO_REFERENCES, config)
    assert [piece.model.is_clean for piece in division.cut.subgraphs] == [True] * 3
    division = core.divide_network(
        graph(chain, "c"), TWO_REFERENCES, {"PARTITION_POLICY": "PIPELINE"}
    )
    assert not any(piece.model.is_clean for piece in division.cut.subgraphs)
