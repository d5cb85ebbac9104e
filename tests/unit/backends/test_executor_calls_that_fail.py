"""Want of memory for any one call inside executors: every request is answered, once, and ends."""

from __future__ import annotations

import signal

import pytest

import aioinfer
from aioinfer import executors
from aioinfer.runtime import runs
from unit.backends.answered_once import (
    WAYS,
    Ask,
    branched_model,
    check_each_is_answered_once,
    model,
)

DEVICES = ["REFERENCE", "HETERO", "MULTI:REFERENCE.0,REFERENCE.1", "BATCH:REFERENCE.0(3)"]
PLACES = [0, 1, 1, 0, 0, 0, 1, 0]
"""The device of each node of the branched model: its first two parts begin side by side."""


def load_branched(core: aioinfer.Core) -> aioinfer.ExecutableNetwork:
    read = core.read_model(branched_model())
    for node, place in zip(read.graph.nodes, PLACES, strict=True):
        read.node(node.name).affinity = f"REFERENCE.{place}"
    return core.load_network(read, "HETERO:REFERENCE.0,REFERENCE.1")


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("device", DEVICES)
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask, device: str
) -> None:
    is_cut = device == "HETERO"
    with load_branched(core) if is_cut else core.load_network(model(), device) as network:
        call_count, _ = check_each_is_answered_once(network, executors, monkeypatch, ask)
    assert call_count > 4, "calls were not seen"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("ask", WAYS)
def test_parts_that_begin_side_by_side_end_with_their_run_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    with load_branched(core) as network:
        call_count, failed_count = check_each_is_answered_once(network, runs, monkeypatch, ask)
    assert call_count > 50, "calls were not seen"
    assert failed_count > 10
