"""Want of memory for any call of runs, or two, on any thread: each is answered, once, and ends."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.runtime import runs
from unit.backends.answered_once import WAYS, Ask, check_each_is_answered_once, model

DEVICES = ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"]


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("device", DEVICES)
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, device: str
) -> None:
    call_count, failed_count = _checked(device, monkeypatch, ask)
    assert call_count > 50, "calls were not seen"
    assert failed_count > 10


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("gap", range(1, 10))
@pytest.mark.parametrize("device", DEVICES)
def test_each_is_answered_once_though_a_second_call_finds_no_memory_soon_after(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, gap: int, device: str
) -> None:
    call_count, failed_count = _checked(device, monkeypatch, ask, gap, 5 if gap == 1 else 11)
    assert call_count > 50, "calls were not seen"
    assert failed_count > 0


def _checked(
    device: str, patch: pytest.MonkeyPatch, ask: Ask, gap: int = 0, step: int = 1
) -> tuple[int, int]:
    given = model()
    with aioinfer.Core() as core:
        read = core.read_model(given)
        if device.startswith("HETERO"):
            first, second = read.graph.nodes
            read.node(first.name).affinity = "REFERENCE.0"
            read.node(second.name).affinity = "REFERENCE.1"
        with core.load_network(read, device) as network:
            return check_each_is_answered_once(network, runs, patch, ask, gap, step)
