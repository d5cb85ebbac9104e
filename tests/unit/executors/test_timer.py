from __future__ import annotations

import gc
import math
import threading
import weakref

import pytest

from aioinfer.errors import PropertyError, RequestStateError
from aioinfer.executors import Clock, Timer, VirtualTimer, is_own_thread, process_timer

WAIT_S = 20.0


def test_virtual_time_stands_still_until_it_is_advanced() -> None:
    clock, fired = VirtualTimer(start_s=10.0), []
    clock.call_at(11.0, lambda: fired.append(clock.now_s()))
    assert (clock.now_s(), fired) == (10.0, [])
    clock.advance(0.999)
    assert fired == []
    clock.advance(1.0)
    assert fired == [11.0]
    assert clock.now_s() == 11.999


def test_alarms_fire_by_time_and_then_by_age() -> None:
    clock, fired = VirtualTimer(), []
    for name, when_s in [("late", 2.0), ("old", 1.0), ("young", 1.0), ("past", -5.0)]:
        clock.call_at(when_s, lambda name=name: fired.append(name))
    clock.advance(3.0)
    assert fired == ["past", "old", "young", "late"]


def test_an_alarm_set_by_an_alarm_fires_in_the_same_stretch() -> None:
    clock, times = VirtualTimer(), []

    def again() -> None:
        times.append(clock.now_s())
        clock.call_at(clock.now_s() + 1.0, again)

    clock.call_at(1.0, again)
    clock.advance(3.5)
    assert times == [1.0, 2.0, 3.0]


def test_a_cancelled_alarm_never_fires_and_says_so() -> None:
    clock, fired = VirtualTimer(), []
    handle = clock.call_at(1.0, lambda: fired.append(1))
    assert handle.is_pending
    assert handle.cancel()
    assert not handle.cancel()
    clock.advance(2.0)
    assert fired == []
    fires = clock.call_at(2.0, lambda: fired.append(2))
    clock.advance(0.0)
    assert fired == [2]
    assert not fires.cancel()


def test_a_cancelled_alarm_keeps_nothing_alive() -> None:
    class Request:
        def expire(self) -> None: ...

    clock, request = VirtualTimer(), Request()
    gone, handle = weakref.ref(request), clock.call_at(60.0, request.expire)
    handle.cancel()
    del request
    gc.collect()
    assert gone() is None


def test_the_heap_is_swept_when_more_than_half_is_cancelled() -> None:
    clock, fired = VirtualTimer(), []
    handles = [clock.call_at(float(n), lambda n=n: fired.append(n)) for n in range(100)]
    for handle in handles[:50]:
        handle.cancel()
    assert repr(clock) == "<VirtualTimer at 0.0 s, 100 set>"
    handles[50].cancel()
    assert repr(clock) == "<VirtualTimer at 0.0 s, 49 set>"
    clock.advance(100.0)
    assert fired == list(range(51, 100))


def test_time_cannot_go_back_and_nan_is_no_time() -> None:
    clock = VirtualTimer()
    for seconds in (-1.0, math.nan):
        with pytest.raises(PropertyError, match="cannot be advanced"):
            clock.advance(seconds)
    with pytest.raises(PropertyError, match="NaN"):
        clock.call_at(math.nan, lambda: None)


def test_infinity_is_never() -> None:
    timer, fired = Timer(), threading.Event()
    timer.call_at(math.inf, lambda: pytest.fail("fired"))
    timer.call_at(timer.now_s(), fired.set)
    assert fired.wait(WAIT_S)
    timer.close()


def test_the_real_timer_fires_on_its_own_daemon_thread() -> None:
    timer, seen, fired = Timer("deadlines"), [], threading.Event()

    def note() -> None:
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon, is_own_thread()))
        fired.set()

    before = threading.active_count()
    assert threading.active_count() == before
    timer.call_at(timer.now_s(), note)
    assert fired.wait(WAIT_S)
    assert seen == [("deadlines", True, True)]
    timer.close()
    timer.close()


def test_an_earlier_alarm_overtakes_a_later_one() -> None:
    timer, fired = Timer(), threading.Event()
    late = timer.call_at(timer.now_s() + 3600.0, lambda: pytest.fail("fired"))
    timer.call_at(timer.now_s() + 0.001, fired.set)
    assert fired.wait(WAIT_S)
    assert late.cancel()
    timer.close()


def test_an_alarm_that_raises_is_logged_and_the_timer_goes_on(caplog) -> None:
    timer, fired = Timer(), threading.Event()

    def broken() -> None:
        raise SystemExit("broken")

    timer.call_at(timer.now_s(), broken)
    timer.call_at(timer.now_s(), fired.set)
    assert fired.wait(WAIT_S)
    assert "it may only set a flag or kick" in caplog.text
    timer.close()


def test_close_cancels_what_is_set_and_later_alarms_never_fire() -> None:
    timer = Timer()
    handle = timer.call_at(timer.now_s() + 3600.0, lambda: pytest.fail("fired"))
    timer.close()
    assert not handle.is_pending
    assert not timer.call_at(timer.now_s(), lambda: pytest.fail("fired")).is_pending
    assert repr(timer) == "<Timer 'timer' closed>"


def test_close_refuses_on_the_timers_own_thread() -> None:
    timer, raised, ended = Timer(), [], threading.Event()

    def closes() -> None:
        try:
            timer.close()
        except RequestStateError as error:
            raised.append(error)
        ended.set()

    timer.call_at(timer.now_s(), closes)
    assert ended.wait(WAIT_S)
    assert len(raised) == 1
    timer.close()


def test_the_process_has_one_timer_and_its_clock_is_monotonic_time() -> None:
    assert process_timer() is process_timer()
    assert isinstance(process_timer(), Clock)
    assert process_timer().now_s() <= process_timer().now_s()
