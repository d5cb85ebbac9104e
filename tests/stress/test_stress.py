"""A hundred thousand runs at once from event loops and threads, on devices that fail at random.

    make stress                          # 100,000 runs
    make stress RUNS=5000 SEED=7         # so many, drawn from this seed

Every run settles exactly once, the numbers add up, and nothing is left of it: no thread, no task,
no object, no descriptor, no memory. ``make test`` runs fewer. Threads take their turns as the
machine gives them, so that a seed repeats what each part of a client draws and not the order.
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

import anyio
import pytest

from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.runtime.devices.core import Core
from aioinfer.runtime.loops import side_task
from aioinfer.runtime.network.infer_request import InferRequest
from aioinfer.runtime.network.result_stream import ResultStream
from aioinfer.runtime.onnx_native import calls as native
from aioinfer.runtime.runs import run_admission
from aioinfer.runtime.runs.run import Run
from aioinfer.runtime.runs.stage import Stop
from aioinfer.runtime.testing.mock_plugin import MockNetwork
from aioinfer.runtime.tracing.recorder import SpanRecorder
from stress.client import Client
from stress.clients import CallbackClient, CallbackError, LoopClient, SyncClient, WaitingClient
from stress.closing_client import ClosingClient
from stress.memory import STATM, Memory
from stress.networks import devices
from stress.overload_client import OverloadClient
from stress.plant import FEWEST_RUNS, Plant
from stress.small_client import SmallClient
from stress.stream_client import StreamClient
from unit.runtime.inline_plugin import InlineNetwork

RUN_COUNT = int(os.environ.get("AIOINFER_STRESS_RUNS", "20000"))
SEED = int(os.environ.get("AIOINFER_STRESS_SEED", "11") or random.randrange(1 << 31))
"""Drawn by ``make stress``, which leaves it empty if none is given; else the same each time."""

GROWTH_BYTES = 4 << 20  # what the allocators of so many threads move by on their own
RING_SPANS = 100  # longer rings would still be filling in the last quarter
FORGOTTEN = "an error of"  # how the log begins of a run whose task was cancelled meanwhile
SHARED_THREADS = {"aioinfer.timer"}
KINDS = (
    *(Run, Stop, InferRequest, ResultStream),
    *(Core, MockNetwork, HeteroNetwork, InlineNetwork),
)


def work(client: Client, errors: list[BaseException]) -> None:
    try:
        client.run()
    except BaseException as error:
        errors.append(error)
        client.plant.give_up()


def run_all(clients: list[Client]) -> None:
    """Have all clients work at once, and raise the first error."""
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=work, args=(client, errors), daemon=True) for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What aioinfer and asyncio have logged, but for planted and forgotten errors."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        is_planted = record.exc_info and isinstance(record.exc_info[1], CallbackError)
        if not (is_planted or record.msg.startswith(FORGOTTEN)):
            messages.append(record.getMessage())
        return False  # a record that is kept keeps its error, and that the frames of its run

    loggers = [logging.getLogger(name) for name in ("aioinfer", "asyncio")]
    for logger in loggers:
        logger.addFilter(keep)
    yield messages
    for logger in loggers:
        logger.removeFilter(keep)


def loop_makers() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    if sys.platform == "win32":
        return [asyncio.new_event_loop] * 2
    import uvloop

    return [asyncio.new_event_loop, uvloop.new_event_loop]


def make_clients(plant: Plant) -> list[Client]:
    """Make one of each kind, and of those that share a loop with nobody one for each loop."""
    asyncio_loop, uvloop_loop = loop_makers()
    clients = [
        LoopClient(plant, 0, asyncio_loop),
        LoopClient(plant, 1, uvloop_loop),
        SyncClient(plant, 2),
        WaitingClient(plant, 3),
        CallbackClient(plant, 4),
        StreamClient(plant, 5, asyncio_loop),
        StreamClient(plant, 6, uvloop_loop),
        OverloadClient(plant, 7, uvloop_loop),
        ClosingClient(plant, 8, asyncio_loop),
    ]
    if plant.small is None:
        print(f"nobody makes runs without a slot: {'; '.join(plant.networks.small_reasons)}")
    else:
        clients += [SmallClient(plant, 9, asyncio_loop), SmallClient(plant, 10, uvloop_loop)]
    return clients


def start_what_stays() -> None:
    """Have the process make what it makes once and keeps: onnx's helper, libuv's signal pipe.

    And imports: pytest rewrites anyio, and CPython cannot take source apart on two threads at once.
    """
    for make in loop_makers():
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(anyio.to_thread.run_sync(gc.collect))
    with devices(SEED) as networks:
        Plant(networks, 0, SEED)


PIPES_OF_A_HELPER = 3


def count_left() -> dict[str, int]:
    """Count what runs are made of, and the process's descriptors."""
    gc.collect()
    counts = dict.fromkeys((kind.__name__ for kind in KINDS), 0)
    for thing in gc.get_objects():
        if type(thing) in KINDS:
            counts[type(thing).__name__] += 1
    folder = Path("/proc/self/fd")
    descriptors = len(list(folder.iterdir())) if folder.exists() else 0
    descriptors -= PIPES_OF_A_HELPER * len(native._pool.helpers())  # they end when they like
    return {**counts, "descriptors": descriptors, "side tasks": len(side_task._running)}


@pytest.mark.timeout(180 + RUN_COUNT // 500)
def test_every_run_settles_once_and_nothing_is_left(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_admission, "SpanRecorder", partial(SpanRecorder, RING_SPANS))
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    start_what_stays()
    threads_before, before = set(threading.enumerate()), count_left()
    memory = Memory() if RUN_COUNT >= FEWEST_RUNS and STATM.exists() else None
    began_s = time.monotonic()
    with devices(SEED) as networks:
        plant = Plant(networks, RUN_COUNT, SEED, None if memory is None else memory.note)
        clients = make_clients(plant)
        run_all(clients)
        for target in plant.targets:
            target.network.close()
        check_counts(plant, clients)
        for client in clients:
            client.check_end()
        plant.forget()
    print(f"{RUN_COUNT / (time.monotonic() - began_s):.0f} runs/s")
    del clients, client, networks, plant, target
    assert count_left() == before
    left = {thread.name for thread in threading.enumerate() if thread not in threads_before}
    assert left <= SHARED_THREADS
    assert log == []
    if memory is not None:
        growth = memory.between(0.9, 1.0) - memory.between(0.65, 0.75)
        print(f"memory grew by {growth / 2**20:.1f} MiB over the last quarter")
        assert growth < GROWTH_BYTES


OUTCOMES = ("finished", "failed", "cancelled", "expired", "refused")


def check_counts(plant: Plant, clients: list[Client]) -> None:
    """Compare what the clients were told with what the networks have counted."""
    seen = sum((client.seen for client in clients), Counter())
    started = sum((client.started for client in clients), Counter())
    again = sum((client.again for client in clients), Counter())
    assert sum(seen.values()) == plant.run_count + sum(client.extra_count for client in clients)
    together: Counter[str] = Counter()
    for index, target in enumerate(plant.targets):
        statistics = target.network.statistics()
        counted = {outcome: getattr(statistics, f"{outcome}_request_count") for outcome in OUTCOMES}
        told = {outcome: seen[index, outcome] for outcome in OUTCOMES}
        where = f"{target.network!r}: counted {counted}, told {told}"
        assert sum(counted.values()) == started[index], where
        unknown = {outcome: counted[outcome] - told[outcome] for outcome in OUTCOMES}
        assert min(unknown.values()) >= 0, where
        assert sum(unknown.values()) == seen[index, "unknown"] + again[index], where
        assert statistics.aborted_request_count == 0
        assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)
        admission = target.network.admission
        assert len(admission._idle) == admission.slot_count
        assert len(admission.runs) == 0
        together += Counter(counted)
        if index < plant.common_count:
            has_each = all(counted[outcome] for outcome in OUTCOMES[:4])
            assert has_each or plant.run_count < FEWEST_RUNS, where
            assert counted["refused"] == 0, where
        if index == plant.narrow:
            assert counted["cancelled"], f"only streams that are left do that: {where}"
        if index == plant.full:
            assert counted["refused"], where
        print(where)
    assert all(together[outcome] for outcome in OUTCOMES), together
