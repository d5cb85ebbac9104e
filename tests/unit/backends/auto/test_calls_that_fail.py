"""Want of memory for any one call inside AUTO: every request is answered, and the rest goes on."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.backends import auto
from aioinfer.backends.auto.executable_network import AutoNetwork
from unit.backends.answered_once import WAYS, Ask, check_each_is_answered_once, model


@pytest.mark.parametrize("ask", WAYS)
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    config = {"ENABLE_RUNTIME_FALLBACK": True}
    with (
        aioinfer.Core() as core,
        core.load_network(model(), "AUTO:REFERENCE.0,REFERENCE.1", config) as network,
    ):
        assert isinstance(network, AutoNetwork)
        call_count, _ = check_each_is_answered_once(network, auto, monkeypatch, ask)
        in_use = [device.running_run_count for device in network.statistics().devices]
    assert call_count > 10, "calls were not seen"
    assert not any(in_use)
