"""Want of memory after a network was lent an executor for its runs: the lease is given back."""

from __future__ import annotations

import pytest

from aioinfer import Core
from aioinfer.executors import note_given_back
from aioinfer.runtime.network import executable_network
from unit.backends.answered_once import model


def test_an_executor_of_callbacks_is_kept_or_given_back_and_never_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_lacking = True

    def lacking(owner: object) -> None:
        nonlocal is_lacking
        if is_lacking:
            is_lacking = False
            raise MemoryError("for the call")
        note_given_back(owner)

    with Core() as core:
        manager = core.executors
        network = core.load_network(model(), "REFERENCE")
        count = manager.executor_count
        monkeypatch.setattr(executable_network, "note_given_back", lacking)
        with pytest.raises(MemoryError):
            _ = network.callback_executor
        assert manager.executor_count == count, "the lease is lost"
        assert network.callback_executor is network.callback_executor
        assert manager.executor_count == count + 1
        network.close()
        assert manager.executor_count < count
