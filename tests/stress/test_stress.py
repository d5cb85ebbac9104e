"""A hundred thousand runs at once from two loops and three threads, on devices that fail at random.

    make stress                          # 100,000 runs
    make stress RUNS=5000 SEED=7         # so many, drawn from this seed

Every run settles exactly once, the numbers add up, and nothing is left of it: no thread, no task,
no object, no descriptor, no memory. ``make test`` runs fewer. Threads take their turns as the
machine gives them, so that a seed repeats what is drawn and not the order.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from aioinfer.runtime import run_admission
from aioinfer.runtime.infer_request import InferRequest
from aioinfer.runtime.pipeline import Stop
from aioinfer.runtime.request_run import RequestRun
from aioinfer.runtime.testing.mock_plugin import MockNetwork
from aioinfer.runtime.tracing import SpanRecorder
from stress.clients import CallbackClient, Client, LoopClient, SyncClient, WaitingClient
from stress.plant import Plant, planted

RUN_COUNT = int(os.environ.get("AIOINFER_STRESS_RUNS", "20000"))
SEED = int(os.environ.get("AIOINFER_STRESS_SEED") or random.SystemRandom().randrange(2**31))

SAMPLE_S = 0.05
FEWEST_RUNS = 10_000  # fewer are over before memory has been looked at often enough
GROWTH_BYTES = 4 << 20  # what the allocators of five threads move by on their own
RING_SPANS = 1000  # rings of the usual size would grow until the end
FORGOTTEN = "an error of"  # how the log begins of a run whose task was cancelled meanwhile
SHARED_THREADS = {"aioinfer.timer"}
KINDS = (RequestRun, Stop, InferRequest, MockNetwork)


class Memory:
    """How much memory the process has had when so many runs were taken."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def note(self, share: float) -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        self._samples.append((share, pages * os.sysconf("SC_PAGE_SIZE")))

    def between(self, first: float, last: float) -> float:
        """The median over this part of the test."""
        return median(size for share, size in self._samples if first <= share <= last)


def work(client: Client, errors: list[BaseException]) -> None:
    try:
        client.run()
    except BaseException as error:
        errors.append(error)


def run_all(plant: Plant, clients: list[Client], memory: Memory | None) -> None:
    """Let all clients work at once, look at the memory meanwhile, and raise the first error."""
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=work, args=(client, errors), daemon=True) for client in clients
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(SAMPLE_S)
        if memory is not None:
            memory.note(plant.taken_count / plant.run_count)
    if errors:
        raise errors[0]


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What aioinfer has logged, but for errors that nobody could ask for any more."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if not record.msg.startswith(FORGOTTEN):
            messages.append(record.getMessage())
        return False  # a record that is kept keeps its error, and that the frames of its run

    logger = logging.getLogger("aioinfer")
    logger.addFilter(keep)
    yield messages
    logger.removeFilter(keep)


def loop_makers() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    if sys.platform == "win32":
        return [asyncio.new_event_loop] * 2
    import uvloop

    return [asyncio.new_event_loop, uvloop.new_event_loop]


def start_what_stays() -> None:
    """Have the process make what it makes once and keeps: onnx's helper, libuv's signal pipe."""
    for make in loop_makers():
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(asyncio.sleep(0))
    with planted(0, SEED):
        pass


def count_left() -> dict[str, int]:
    """Count what runs are made of, and the process's descriptors."""
    gc.collect()
    counts = dict.fromkeys((kind.__name__ for kind in KINDS), 0)
    for thing in gc.get_objects():
        if type(thing) in KINDS:
            counts[type(thing).__name__] += 1
    folder = Path("/proc/self/fd")
    return {**counts, "descriptors": len(list(folder.iterdir())) if folder.exists() else 0}


@pytest.mark.timeout(30 + RUN_COUNT // 1000)
def test_every_run_settles_once_and_nothing_is_left(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_admission, "SpanRecorder", partial(SpanRecorder, RING_SPANS))
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    start_what_stays()
    threads_before, before = set(threading.enumerate()), count_left()
    can_tell = RUN_COUNT >= FEWEST_RUNS and Path("/proc/self/statm").exists()
    memory = Memory() if can_tell else None
    began_s = time.monotonic()
    with planted(RUN_COUNT, SEED) as plant:
        loops = [LoopClient(plant, number, make) for number, make in enumerate(loop_makers())]
        callbacks = CallbackClient(plant, 4)
        clients = [*loops, SyncClient(plant, 2), WaitingClient(plant, 3), callbacks]
        run_all(plant, clients, memory)
        for target in plant.targets:
            target.network.close()
        check_counts(plant, clients)
        assert [loop.left_tasks for loop in loops] == [[], []]
        assert callbacks.strange == []
        assert callbacks.told == dict.fromkeys(range(callbacks.run_count), 1)
        plant.forget()
    print(f"{RUN_COUNT / (time.monotonic() - began_s):.0f} runs/s")
    del clients, loops, callbacks, plant, target
    assert count_left() == before
    left = {thread.name for thread in threading.enumerate() if thread not in threads_before}
    assert left <= SHARED_THREADS
    assert log == []
    if memory is not None:
        growth = memory.between(0.9, 1.0) - memory.between(0.5, 0.6)
        print(f"memory grew by {growth / 2**20:.1f} MiB over the second half")
        assert growth < GROWTH_BYTES


def check_counts(plant: Plant, clients: list[Client]) -> None:
    """Compare what the clients were told with what the networks have counted."""
    seen = sum((client.seen for client in clients), Counter())
    assert sum(seen.values()) == plant.run_count
    for index, target in enumerate(plant.targets):
        statistics = target.network.statistics()
        counted = {
            "finished": statistics.finished_request_count,
            "failed": statistics.failed_request_count,
            "cancelled": statistics.cancelled_request_count,
            "expired": statistics.expired_request_count,
        }
        told = {outcome: seen[index, outcome] for outcome in counted}
        where = f"{target.network!r}: counted {counted}, told {told}"
        assert sum(counted.values()) == sum(client.started[index] for client in clients), where
        unknown = {outcome: counted[outcome] - told[outcome] for outcome in counted}
        assert min(unknown.values()) >= 0, where
        assert sum(unknown.values()) == seen[index, "unknown"], where
        assert min(counted.values()) > 0, where
        assert statistics.aborted_request_count == 0
        assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)
        admission = target.network.admission
        assert admission.idle_slot_count == admission.slot_count
        assert admission.open_run_count == 0
        print(where)
