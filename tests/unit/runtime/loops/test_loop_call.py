"""A call that could not be sent to its event loop, for want of memory, is as if never made."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from aioinfer.runtime.loops.loop_call import LoopCall


class FullLoop:
    """Keeps what it is given, and finds no memory to wake itself."""

    def __init__(self) -> None:
        self.kept: list[Callable[[], Any]] = []

    def call_soon_threadsafe(self, call: Callable[[], Any]) -> None:
        self.kept.append(call)
        raise MemoryError


def test_a_call_that_could_not_be_sent_is_neither_made_nor_over() -> None:
    loop, calls, overs = FullLoop(), [], []
    call = LoopCall(loop, lambda: calls.append(1), copy_context(), lambda *told: overs.append(told))
    with pytest.raises(MemoryError):
        call.send()
    loop.kept.pop()()
    del call
    gc.collect()
    assert (calls, overs) == ([], [])
