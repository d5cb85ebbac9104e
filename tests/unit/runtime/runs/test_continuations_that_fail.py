"""Want of memory at the start of what brings a run further, on whichever thread: it ends."""

from __future__ import annotations

from typing import Any

import pytest

from aioinfer import Core
from aioinfer.runtime.runs.run import Run
from unit.backends.answered_once import WAYS, Ask, X, model

WAIT_S = 20


@pytest.mark.parametrize("device", ["REFERENCE", "MULTI:REFERENCE.0,REFERENCE.1"])
@pytest.mark.parametrize("method", ["_advance", "_step", "_call", "_end", "_give_back"])
@pytest.mark.parametrize("ask", WAYS)
def test_a_run_ends_though_it_could_not_be_brought_further(
    core: Core, monkeypatch: pytest.MonkeyPatch, ask: Ask, method: str, device: str
) -> None:
    whole, left = getattr(Run, method), 0

    def fail_once(run: Run, *args: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise MemoryError(f"for {method}")
        return whole(run, *args, **named)

    monkeypatch.setattr(Run, method, fail_once)
    with core.load_network(model(), device) as network:
        for number in range(1, 8):
            left = number
            assert len(ask(network)) == 5
            left = 0
            network.create_infer_request().infer_sync({"x": X}, deadline_s=WAIT_S)
            assert network.admission.wait_until_over(WAIT_S)
            assert len(network.admission._idle) == network.admission.slot_count
            for inner in getattr(network, "networks", ()):
                assert len(inner.admission._idle) == inner.admission.slot_count
