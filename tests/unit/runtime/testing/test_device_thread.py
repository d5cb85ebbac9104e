"""A thread that plays the device fires what the host asks for, and keeps nothing."""

from __future__ import annotations

import random
import threading

import pytest

from aioinfer.errors import RequestStateError
from aioinfer.executors.base import refuse_own_thread
from aioinfer.testing import DeviceThread, ManualStreams

WAIT_S = 20.0


@pytest.mark.parametrize("order", [None, random.Random(3)], ids=["turns", "drawn"])
def test_an_event_that_the_host_asks_for_fires_on_the_device_s_thread(
    order: random.Random | None,
) -> None:
    device, told = ManualStreams(), threading.Event()
    threads: list[str] = []

    def tell(_error: BaseException | None) -> None:
        threads.append(threading.current_thread().name)
        told.set()

    upload, compute = device.stream("upload"), device.stream("compute")
    with DeviceThread([device], order):
        upload.enqueue("copy")
        compute.wait_event(upload.record_event())
        compute.record_event().when_ready(tell)
        assert told.wait(WAIT_S)
    assert threads == ["aioinfer.device"]
    assert device.enqueued == device.done == device.watched == []


def test_at_its_end_the_device_does_what_was_enqueued() -> None:
    device, done = ManualStreams(), []
    with DeviceThread([device]):
        device.stream("upload").enqueue("copy", lambda: done.append("copy"))
        event = device.stream("upload").record_event()
    assert event.is_ready
    assert done == ["copy"]


def test_who_raises_when_told_is_found_out_at_the_end_and_holds_up_nobody() -> None:
    device, told = ManualStreams(), threading.Event()

    def raise_(_error: BaseException | None) -> None:
        raise KeyError("planted")

    def use() -> None:
        with DeviceThread([device]):
            stream.record_event().when_ready(raise_)
            stream.record_event().when_ready(lambda _error: told.set())
            assert told.wait(WAIT_S)

    stream = device.stream("upload")
    with pytest.raises(KeyError, match="planted"):
        use()


def test_blocking_calls_refuse_on_the_device_s_thread() -> None:
    device, refused = ManualStreams(), []

    def block(_error: BaseException | None) -> None:
        try:
            refuse_own_thread("wait")
        except RequestStateError as error:
            refused.append(error)

    with DeviceThread([device]):
        device.stream("upload").record_event().when_ready(block)
    assert len(refused) == 1


def test_after_its_end_the_test_has_the_device_again() -> None:
    device = ManualStreams()
    with DeviceThread([device]):
        pass
    event = device.stream("upload").record_event()
    event.when_ready(lambda _error: None)
    assert not event.is_ready
    device.fire_next("upload")
    assert event.is_ready
