"""Every row of the table, and every move that is not in it."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from aioinfer.errors import RequestBusyError, RequestStateError
from aioinfer.runtime.network.request_state import MOVES, Event, State, move

STATES, EVENTS = get_args(State), get_args(Event)


@pytest.mark.parametrize(("state", "event"), list(MOVES))
def test_a_move_of_the_table_leads_to_its_state(state: State, event: Event) -> None:
    assert move(state, event) == MOVES[state, event]


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair in itertools.product(STATES, EVENTS) if pair not in MOVES]
)
def test_any_other_move_raises_and_names_the_state(state: State, event: Event) -> None:
    expected = RequestStateError if state == "idle" else RequestBusyError
    with pytest.raises(expected, match="allowed now"):
        move(state, event, "request 3 of 'digits'")


def test_a_cancelled_request_is_busy_until_its_device_is_done() -> None:
    with pytest.raises(RequestBusyError, match="its device is not done yet"):
        move("cancelled", "start")
    assert move("cancelled", "finish") == "idle"


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in MOVES} == set(STATES)
    assert set(MOVES.values()) == set(STATES)
