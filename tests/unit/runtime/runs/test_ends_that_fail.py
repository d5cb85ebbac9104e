"""Want of memory for any one call of runs, on any thread: each is answered, once, and ends."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.runtime import runs
from unit.backends.answered_once import WAYS, Ask, check_each_is_answered_once, model


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, device: str
) -> None:
    given = model()
    with aioinfer.Core() as core:
        read = core.read_model(given)
        if device.startswith("HETERO"):
            first, second = read.graph.nodes
            read.node(first.name).affinity = "REFERENCE.0"
            read.node(second.name).affinity = "REFERENCE.1"
        with core.load_network(read, device) as network:
            call_count, failed_count = check_each_is_answered_once(network, runs, monkeypatch, ask)
    assert call_count > 50, "calls were not seen"
    assert failed_count > 10
