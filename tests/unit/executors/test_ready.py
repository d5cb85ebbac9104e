from __future__ import annotations

import gc
import weakref

import pytest

from aioinfer.executors import NOW, HostReady, ManualStreams, Ready


def test_a_token_tells_who_asked_before_and_who_asks_after() -> None:
    token, heard = HostReady(), []
    token.when_ready(lambda error: heard.append(("before", error)))
    token.fire()
    token.when_ready(lambda error: heard.append(("after", error)))
    assert heard == [("before", None), ("after", None)]
    assert token.is_ready


def test_the_first_firing_wins() -> None:
    token, first = HostReady(), ValueError("first")
    token.fire(first)
    token.fire(ValueError("second"))
    token.fire()
    assert token.error is first


def test_everybody_is_told_even_if_one_of_them_raises() -> None:
    token, heard = HostReady(), []

    def broken(error: BaseException | None) -> None:
        raise RuntimeError("broken")

    token.when_ready(broken)
    token.when_ready(heard.append)
    with pytest.raises(RuntimeError, match="broken"):
        token.fire()
    assert heard == [None]


def test_a_join_fires_after_the_last_of_its_tokens() -> None:
    tokens = [HostReady(), HostReady(), HostReady()]
    joined, heard = Ready.join(tokens), []
    joined.when_ready(heard.append)
    for token in reversed(tokens):
        assert heard == []
        assert not joined.is_ready
        token.fire()
    assert heard == [None]
    assert joined.is_ready


def test_a_join_has_the_first_error_in_the_order_of_its_tokens() -> None:
    first, second, third = HostReady(), HostReady(), HostReady()
    joined, errors = Ready.join([first, second, third]), [ValueError("2"), ValueError("3")]
    third.fire(errors[1])
    second.fire(errors[0])
    assert not joined.is_ready
    first.fire()
    assert joined.error is errors[0]


def test_an_error_that_counts_as_false_is_an_error() -> None:
    class FalsyError(Exception):
        def __bool__(self) -> bool:
            return False

    falsy, other = HostReady(), HostReady()
    joined = Ready.join([falsy, other])
    falsy.fire(FalsyError())
    other.fire()
    assert isinstance(joined.error, FalsyError)
    assert "failed: FalsyError()" in repr(falsy)


def test_a_join_of_what_has_fired_is_now() -> None:
    token = HostReady()
    token.fire()
    assert Ready.join([NOW, token, NOW]) is NOW
    assert Ready.join([]) is NOW


def test_a_join_keeps_a_token_that_has_failed() -> None:
    token = HostReady()
    token.fire(ValueError("lost"))
    assert Ready.join([NOW, token]) is token


def test_a_join_of_one_device_event_is_that_event() -> None:
    event = ManualStreams().stream("upload").record_event()
    assert Ready.join([NOW, event, event]) is event


def test_joins_are_taken_apart_when_they_are_joined() -> None:
    device = ManualStreams()
    first, second = (device.stream(name).record_event() for name in ("upload", "compute"))
    host = HostReady()
    joined = Ready.join([Ready.join([first, host]), second, first])
    assert joined.parts == (first, host, second)
    device.fire_all()
    host.fire()
    assert joined.is_ready


def test_a_join_asks_its_parts_nothing_until_it_is_asked() -> None:
    device = ManualStreams()
    events = [device.stream(name).record_event() for name in ("upload", "compute")]
    joined, heard = Ready.join(events), []
    assert device.watched == []
    joined.when_ready(heard.append)
    joined.when_ready(heard.append)
    assert device.watched == events
    device.fire_next("upload")
    assert heard == []
    device.fire_next("compute")
    assert heard == [None, None]
    assert joined.parts == (joined,)


def test_a_join_that_nobody_asked_still_knows_whether_it_has_fired() -> None:
    first, second, error = HostReady(), HostReady(), OSError("device")
    joined = Ready.join([first, second])
    second.fire(error)
    assert (joined.is_ready, joined.error) == (False, None)
    first.fire()
    assert (joined.is_ready, joined.error) == (True, error)
    heard: list[BaseException | None] = []
    joined.when_ready(heard.append)
    assert heard == [error]


def test_600_joins_of_joins_do_not_recurse() -> None:
    first = HostReady()
    joined = Ready.join([first, HostReady()])
    for _ in range(600):
        joined = Ready.join([joined, HostReady()])
    parts, heard = joined.parts, []
    joined.when_ready(heard.append)
    for token in parts:
        assert isinstance(token, HostReady)
        assert heard == []
        token.fire()
    assert heard == [None]


def test_a_join_that_has_fired_keeps_none_of_its_tokens() -> None:
    class Token(HostReady):
        __slots__ = ("__weakref__",)

    first, second = Token(), Token()
    joined, gone = Ready.join([first, second]), weakref.ref(first)
    joined.when_ready(lambda error: None)
    first.fire()
    second.fire()
    del first, second
    gc.collect()
    assert gone() is None
    assert joined.is_ready
