"""Want of memory for any one call inside BATCH: every request is answered, and the rest goes on."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.backends import batch
from unit.backends.answered_once import (
    Ask,
    called_back,
    check_each_is_answered_once,
    model,
    started,
)


@pytest.mark.parametrize("ask", [started, called_back])
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    with core.load_network(model(), "BATCH:REFERENCE(4)") as network:
        call_count, failed_count = check_each_is_answered_once(network, batch, monkeypatch, ask)
    assert call_count > 50, "calls were not seen"
    assert failed_count > 10
