"""Properties that hold no lock while they are computed: no other thread or child waits for one."""

import os
import threading

from aioinfer.executors.cached_property import cached_property


class Slow:
    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.count = 0

    @cached_property
    def made(self) -> object:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(30)
        return object()


def quick() -> Slow:
    slow = Slow()
    slow.may_end.set()
    return slow


def test_it_is_computed_once_and_documented_by_its_class() -> None:
    one = quick()
    assert one.made is one.made
    assert one.count == 1
    assert isinstance(Slow.made, cached_property)


def test_neither_another_object_nor_a_child_waits_for_one_that_is_computed() -> None:
    slow = Slow()
    thread = threading.Thread(target=lambda: slow.made)
    thread.start()
    assert slow.begun.wait(30)
    others: list[object] = []
    other = threading.Thread(target=lambda: others.append(quick().made), daemon=True)
    other.start()
    other.join(10)
    child = os.fork()
    if child == 0:
        reader = threading.Thread(target=lambda: quick().made, daemon=True)
        reader.start()
        reader.join(10)
        os._exit(1 if reader.is_alive() else 0)
    _, status = os.waitpid(child, 0)
    slow.may_end.set()
    thread.join(30)
    assert len(others) == 1
    assert status == 0


def test_threads_that_ask_at_a_time_get_one_object() -> None:
    slow, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(slow.made)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert slow.begun.wait(30)
    slow.may_end.set()
    for thread in threads:
        thread.join(30)
    assert len({id(item) for item in found}) == 1
