"""Want of memory for any one call inside MULTI: every request is answered, and the rest goes on."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.backends import multi
from unit.backends.answered_once import WAYS, Ask, check_each_is_answered_once, model


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("policy", ["EARLIEST_END", "ROUND_ROBIN"])
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask, policy: str
) -> None:
    config = {"SCHEDULE_POLICY": policy}
    with core.load_network(model(), "MULTI:REFERENCE.0,REFERENCE.1", config) as network:
        call_count, _ = check_each_is_answered_once(network, multi, monkeypatch, ask)
        in_use = [device.running_run_count for device in network.statistics().devices]
    assert call_count > 25, "calls were not seen"
    assert in_use == [0, 0]
