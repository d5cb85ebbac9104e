"""Parked work is started or answered once, whichever call finds no memory for it."""

from __future__ import annotations

import pytest

from aioinfer.executors import NOW, HostReady, Ready
from aioinfer.executors import parking as module
from aioinfer.executors.parking import Parking


class Told:
    """Notes what a piece of work was ended with."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def then(self, ready: Ready, error: BaseException | None) -> None:
        assert ready is NOW
        self.errors.append(error)


def lacking() -> None:
    raise MemoryError("for its start")


def test_work_that_finds_no_memory_to_start_is_answered_and_its_lot_can_be_closed() -> None:
    parking, token, told = Parking("lot"), HostReady(), Told()
    parking.park(token, lacking, told.then)
    token.fire()
    assert [str(error) for error in told.errors] == ["for its start"]
    parking.close(drain=True)


@pytest.mark.parametrize("token_error", [None, OSError("lost")])
@pytest.mark.parametrize("call", ["fired", "leave"])
def test_what_the_token_could_not_call_is_gone_through_again(
    call: str, token_error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"fired": module._Parked, "leave": Parking}[call]
    right, failed = getattr(owner, call), []

    def failing_once(*args: object) -> None:
        if not failed:
            failed.append(call)
            raise MemoryError("for the call")
        right(*args)

    monkeypatch.setattr(owner, call, failing_once)
    parking, token, told, started = Parking("lot"), HostReady(), Told(), []
    parking.park(token, lambda: started.append(True), told.then)
    with pytest.raises(MemoryError):
        token.fire(token_error)
    assert (started, told.errors) == (([], [token_error]) if token_error else ([True], []))
    assert parking.count == 0
    parking.close(drain=True)
