"""Tens of thousands of requests that share runs: every one settles once, with its own answer.

Random arrivals, rows, lengths, priorities, deadlines, cancels, items that no run can take, stages
that fail, and a device that is lost now and then; on two event loops and from threads. Lengths are
equal in a run, or padded.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.executors import StreamsConfig, StreamsExecutor
from aioinfer.runtime.tracing.statistics import NetworkStatistics
from aioinfer.testing import MockDevices
from stress.faults import PlantedDeviceError, RandomFault, StageError
from stress.users import RUN_COUNT, SEED, LoopUsers, ThreadUsers, Users, all_ask, lookup_model

WAIT_S = 20.0  # a bound for what must happen; never slept through


@pytest.mark.timeout(180 + RUN_COUNT // 100)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"AUTO_BATCH_TIMEOUT": 1},
        {"LENGTH_BUCKETS": "2,4", "PADDING_VALUES": {"x": 0}},
    ],
    ids=["while busy", "timed", "padded"],
)
def test_requests_that_share_runs_settle_once_with_their_own_answers(
    config: dict[str, Any],
) -> None:
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    chance = random.Random(SEED)
    with StreamsExecutor(StreamsConfig("MOCK", 2)) as threads, aioinfer.Core() as core:
        devices = MockDevices(1, executor=threads)
        core.register_plugin("MOCK", devices.make_plugin)
        devices[0].slot_count = 4
        devices[0].stage_fault = RandomFault((StageError, PlantedDeviceError), chance)
        network = core.load_network(lookup_model(), "BATCH:MOCK(8)", config)
        users = (
            LoopUsers(network, SEED + 1),
            LoopUsers(network, SEED + 2),
            ThreadUsers(network, SEED + 3),
            ThreadUsers(network, SEED + 4),
        )
        seen, statistics = settled(network, users)
        assert all(seen[outcome] for outcome in ("failed", "cancelled", "expired"))
        (part,) = statistics.parts
        assert max(part.batch_sizes) > 1
        assert part.running_run_count == part.waiting_run_count == 0
        del users
        network.close()
        gc.collect()


@pytest.mark.timeout(120 + RUN_COUNT // 100)
@pytest.mark.parametrize("most_rows", [3, 16])
def test_requests_that_loops_run_themselves_settle_once_with_their_own_answers(
    most_rows: int,
) -> None:
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    with aioinfer.Core() as core:
        short = {"DEVICE_PROPERTIES": {"REFERENCE": {"INLINE_THRESHOLD_US": 1_000_000}}}
        network = core.load_network(lookup_model(), f"BATCH:REFERENCE({most_rows})", short)
        users = (
            LoopUsers(network, SEED + 1),
            LoopUsers(network, SEED + 2),
            ThreadUsers(network, SEED + 3),
        )
        _, statistics = settled(network, users)
        assert network.inline_route is not None
        request = network.create_infer_request()
        while not network.inline_route.lent.count:  # users may have left no time for it
            request.infer_sync(np.zeros((1, 1), np.int64))
        wait_until_over(network)
        assert not network.admission.runs
        (part,) = statistics.parts
        assert part.running_run_count == part.waiting_run_count == 0
        del users, request
        network.close()
        gc.collect()


def settled(
    network: aioinfer.ExecutableNetwork, users: Sequence[Users]
) -> tuple[Counter[str], NetworkStatistics]:
    """Have all ask, and check that every call has settled once; what they saw, and the counts."""
    share = RUN_COUNT // len(users)
    seen = all_ask(network, users, share)
    wait_until_over(network)
    statistics, latencies = network.statistics(), network.admission.latencies()
    assert statistics.running_run_count == statistics.waiting_run_count == 0
    counted = sum(found.count for found in latencies.values())
    assert seen.total() == len(users) * share
    assert counted <= seen.total()  # a call that is cancelled before it begins is none
    assert seen["finished"] <= latencies["finished"].count
    assert sum(statistics.batch_sizes.values()) == counted
    assert seen["finished"] > share
    return seen, statistics


def wait_until_over(network: aioinfer.ExecutableNetwork) -> None:
    """Wait for runs whose callers were answered early, or just now."""
    assert isinstance(network, BatchNetwork)
    for part in (network, network.compiled):
        assert part.admission.wait_until_over(WAIT_S)
