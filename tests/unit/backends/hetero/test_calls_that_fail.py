"""Want of memory for any one call inside HETERO: every request is answered, the rest goes on."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.backends import hetero
from unit.backends.answered_once import WAYS, Ask, check_each_is_answered_once, model


@pytest.mark.parametrize("ask", WAYS)
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    halves = core.read_model(model())
    for index, node in enumerate(halves.graph.nodes):
        node.affinity = f"REFERENCE.{index % 2}"
    with core.load_network(halves, "HETERO:REFERENCE.0,REFERENCE.1") as network:
        call_count, failed_count = check_each_is_answered_once(network, hetero, monkeypatch, ask)
    assert call_count > 25, "calls were not seen"
    assert failed_count > 10
