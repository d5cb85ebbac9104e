from __future__ import annotations

import threading

import pytest

from aioinfer.errors import RequestStateError
from aioinfer.executors import (
    NOW,
    HostReady,
    ImmediateExecutor,
    Ready,
    hand_over,
    hop,
    is_own_thread,
    mark_own_thread,
    must_not_block,
    refuse_own_thread,
)
from aioinfer.executors.base import this_thread


def test_hops_run_one_after_the_other_and_never_inside_each_other() -> None:
    order: list[str] = []

    def outer() -> None:
        hop(order.append, "inner")
        order.append("outer")

    hop(outer)
    assert order == ["outer", "inner"]


def test_600_inline_stages_do_not_recurse(told, make_chain) -> None:
    executor, count = ImmediateExecutor(), 0

    def stage(lane):
        nonlocal count
        count += 1
        return NOW

    make_chain([(executor, stage)] * 600, told).start()
    assert told.only == (NOW, None)
    assert count == 600


def test_hops_behind_one_that_raises_still_run() -> None:
    order: list[str] = []

    def outer() -> None:
        hop(order.append, "behind")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hop(outer)
    assert order == ["behind"]
    hop(order.append, "later")
    assert order == ["behind", "later"]


def test_inside_a_hop_a_blocking_call_is_refused() -> None:
    raised: list[BaseException] = []

    def stage() -> None:
        assert must_not_block()
        try:
            refuse_own_thread("wait")
        except RequestStateError as error:
            raised.append(error)

    hop(stage)
    assert "wait would block" in str(raised[0])
    assert "inside a stage or callback" in str(raised[0])
    assert not must_not_block()
    refuse_own_thread("wait")


def test_an_own_thread_refuses_and_names_itself() -> None:
    raised: list[BaseException] = []

    def work() -> None:
        mark_own_thread()
        try:
            refuse_own_thread("close")
        except RequestStateError as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="CPU.0", daemon=True)
    thread.start()
    thread.join()
    assert "close would block 'CPU.0'" in str(raised[0])
    assert not is_own_thread()


def test_what_a_thread_hopped_in_a_hop_of_its_own_is_done_when_that_ends() -> None:
    order: list[str] = []
    thread = this_thread()
    thread.is_hopping = True
    assert must_not_block()
    hop(order.append, "behind")
    order.append("own")
    thread.end_hop()
    assert order == ["own", "behind"]
    assert not must_not_block()


class Owner:
    """Has a method that no hop can call, and is told so."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []

    def lose(self) -> None:
        raise MemoryError

    def hop_failed(self, error: BaseException) -> None:
        self.told.append(error)


def test_the_owner_of_a_hop_that_has_waited_is_told_that_it_failed() -> None:
    first, second, outermost = Owner(), Owner(), Owner()

    def hand_over() -> None:
        hop(first.lose)
        hop(second.lose)

    with pytest.raises(MemoryError):
        hop(hand_over)
    with pytest.raises(MemoryError):
        hop(outermost.lose)
    assert [type(error) for error in (*first.told, *second.told)] == [MemoryError] * 2
    assert outermost.told == [], "its caller knows"


class Waiter:
    """Is to be called with a token, or once one has fired, and cannot be."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []

    def ended(self, _ready: Ready, _error: BaseException | None) -> None:
        raise MemoryError

    def fired(self, _error: BaseException | None) -> None:
        raise MemoryError

    def hop_failed(self, error: BaseException) -> None:
        self.told.append(error)


def test_the_owner_of_a_continuation_is_told_once_the_token_that_it_did_not_get_has_fired() -> None:
    owner, token = Waiter(), HostReady()
    hand_over(owner.ended, token, None)
    assert owner.told == [], "a device still works for it"
    token.fire()
    assert [type(error) for error in owner.told] == [MemoryError]


def test_the_owner_of_what_waits_for_a_token_is_told_that_it_could_not_be_called() -> None:
    owner, token = Waiter(), HostReady()
    token.when_ready(owner.fired)
    with pytest.raises(MemoryError):
        token.fire()
    assert [type(error) for error in owner.told] == [MemoryError]


class Late(Owner):
    """Finds no memory for hearing of it at first."""

    def __init__(self, missed: int) -> None:
        super().__init__()
        self.missed = missed

    def hop_failed(self, error: BaseException) -> None:
        self.missed -= 1
        if self.missed >= 0:
            raise MemoryError("for hop_failed")
        super().hop_failed(error)


@pytest.mark.parametrize("missed", [1, 3])
def test_an_owner_that_finds_no_memory_for_hearing_it_is_told_again(missed: int) -> None:
    owner = Late(missed)
    hand_over(owner.lose)
    assert [type(error) for error in owner.told] == [MemoryError]


def test_an_owner_that_never_finds_memory_is_given_up_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Late(100)
    hand_over(owner.lose)
    assert owner.told == []
    assert "could not be told" in caplog.text
