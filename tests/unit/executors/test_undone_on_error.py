"""What a call has taken is given back where an error leaves it, and kept where none does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

import pytest

from aioinfer.errors import ModelError
from aioinfer.executors import (
    ExecutorManager,
    StreamsConfig,
    note_count,
    note_given_back,
    note_owner,
    note_taken,
    undone_on_error,
)

GIVEN_BACK: list[str] = []


@pytest.fixture(autouse=True)
def given_back() -> list[str]:
    GIVEN_BACK.clear()
    return GIVEN_BACK


def take(name: str) -> object:
    owner = object()
    note_taken(owner, partial(GIVEN_BACK.append, name))
    return owner


def failing(body: Callable[[], object], kind: type[BaseException] = ModelError) -> None:
    """Call what takes something, and fail."""
    with undone_on_error():
        body()
        raise kind("damaged")


def test_an_error_gives_back_what_is_still_held_the_latest_first() -> None:
    def body() -> None:
        take("a")
        note_given_back(take("b"))
        take("c")

    with pytest.raises(ModelError):
        failing(body)
    assert GIVEN_BACK == ["c", "a"]


def test_a_call_that_succeeds_keeps_what_it_took_unless_the_one_around_it_fails() -> None:
    @undone_on_error()
    def succeeding() -> None:
        take("a")

    succeeding()
    assert GIVEN_BACK == []
    with pytest.raises(KeyboardInterrupt):
        failing(succeeding, KeyboardInterrupt)
    assert GIVEN_BACK == ["a"]


def test_an_inner_call_that_fails_leaves_the_outer_one_what_it_has() -> None:
    with undone_on_error():
        take("outer")
        with pytest.raises(ModelError):
            failing(partial(take, "inner"))
    assert GIVEN_BACK == ["inner"]


def test_one_owner_gives_back_what_was_taken_since_and_nothing_else() -> None:
    def owned() -> None:
        since = note_count()
        take("a")
        take("b")
        note_owner(object(), partial(GIVEN_BACK.append, "the owner"), since)
        take("c")

    def body() -> None:
        take("outer")
        owned()

    with pytest.raises(ModelError):
        failing(body)
    assert GIVEN_BACK == ["c", "the owner", "outer"]
    note_owner(object(), partial(GIVEN_BACK.append, "no call"))
    with pytest.raises(ModelError):
        failing(lambda: None)
    assert "no call" not in GIVEN_BACK


def test_what_cannot_be_given_back_is_logged_and_the_first_error_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse() -> None:
        raise RuntimeError("busy")

    def body() -> None:
        take("a")
        note_taken("the device", refuse)

    with caplog.at_level(logging.WARNING, "aioinfer"), pytest.raises(ModelError, match="damaged"):
        failing(body)
    assert GIVEN_BACK == ["a"]
    assert "'the device' is not given back" in caplog.text


def test_other_threads_and_what_no_call_has_taken_are_left_alone() -> None:
    def body() -> None:
        thread = threading.Thread(target=take, args=("elsewhere",))
        thread.start()
        thread.join()

    take("before")
    with pytest.raises(ModelError):
        failing(body)
    assert GIVEN_BACK == []


def test_leases_of_a_call_that_fails_are_returned_once_each() -> None:
    manager, config = ExecutorManager(), StreamsConfig("lent")
    kept = manager.acquire(config)

    def body() -> None:
        manager.acquire(config)
        manager.release(manager.acquire(config))
        manager.acquire(StreamsConfig("alone"))

    with pytest.raises(ModelError):
        failing(body)
    assert manager.executor_count == 1
    manager.release(kept)
    assert manager.executor_count == 0
    manager.close()
