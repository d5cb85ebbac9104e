from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from aioinfer.executors.cpu_allowance import (
    CpuAllowance,
    allowance_kept,
    allowed_cpus,
    cpus_of_stream,
    limiting_group,
    parse_cfs_quota,
    parse_cpu_max,
    part_of_allowance,
)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("200000 100000\n", (200_000_000, 100_000_000)),
        ("15000 10000", (15_000_000, 10_000_000)),
        ("max 100000\n", None),
        ("", None),
        ("200000", None),
        ("-1 100000", None),
        ("200000 0", None),
        ("many few", None),
    ],
)
def test_cpu_max_is_read_as_quota_and_period(text: str, limit: tuple[int, int] | None) -> None:
    assert parse_cpu_max(text) == limit


@pytest.mark.parametrize(
    ("quota", "period", "limit"),
    [
        ("400000\n", "100000\n", (400_000_000, 100_000_000)),
        ("-1\n", "100000\n", None),
        ("", "", None),
    ],
)
def test_the_two_files_of_v1_are_read_as_quota_and_period(quota, period, limit) -> None:
    assert parse_cfs_quota(quota, period) == limit


def cgroup_quota(membership: str, read: Callable[[str], str | None]) -> float | None:
    group = limiting_group(membership, read)
    return None if group is None else group.cpus


def test_the_smallest_quota_on_the_way_to_the_root_counts() -> None:
    files = {
        "/sys/fs/cgroup/cpu.max": "max 100000",
        "/sys/fs/cgroup/app.slice/cpu.max": "300000 100000",
        "/sys/fs/cgroup/app.slice/web.service/cpu.max": "800000 100000",
    }
    assert cgroup_quota("0::/app.slice/web.service\n", files.get) == 3.0


def test_in_a_container_the_groups_own_path_may_not_be_visible() -> None:
    files = {"/sys/fs/cgroup/cpu.max": "250000 100000"}
    assert cgroup_quota("0::/docker/0123abcd\n", files.get) == 2.5
    assert cgroup_quota("0::/../../elsewhere\n", files.get) == 2.5


def test_v1_names_its_folder_after_its_controllers() -> None:
    files = {
        "/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "50000",
        "/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/memory/docker/ab/cpu.cfs_quota_us": "1000",
        "/sys/fs/cgroup/memory/docker/ab/cpu.cfs_period_us": "100000",
    }
    membership = "7:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n1:cpuset:/docker/ab\n"
    assert cgroup_quota(membership, files.get) == 0.5


def test_without_groups_there_is_no_quota() -> None:
    assert cgroup_quota("", {}.get) is None
    assert cgroup_quota("0::/\n", {}.get) is None


@pytest.mark.parametrize(
    ("cpu_count", "quota", "count"),
    [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (8, 0.1, 1), (2, 16.0, 2), (0, None, 1)],
)
def test_the_allowance_is_the_smaller_of_mask_and_quota(cpu_count, quota, count) -> None:
    assert CpuAllowance(tuple(range(cpu_count)), quota).count == count


def test_streams_get_neighbouring_cpus_of_their_own() -> None:
    cpus = (0, 1, 4, 5)
    assert [cpus_of_stream(cpus, 2, index) for index in range(2)] == [(0, 1), (4, 5)]


def test_with_too_few_cpus_streams_share_and_none_is_left_without() -> None:
    assert [cpus_of_stream((0, 1), 1, index) for index in range(3)] == [(0,), (1,), (0,)]
    assert cpus_of_stream((3,), 4, 2) == (3,)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_pinned_thread_still_sees_the_cpus_of_the_process() -> None:
    seen: list[tuple[int, ...]] = []
    process = allowed_cpus().cpus

    def pinned() -> None:
        os.sched_setaffinity(0, {process[0]})
        seen.append(allowed_cpus().cpus)

    thread = threading.Thread(target=pinned, daemon=True)
    thread.start()
    thread.join()
    assert seen == [process]


@pytest.mark.parametrize(
    ("quota", "count", "whole"), [(None, 4, 4), (2.5, 3, 2), (0.3, 1, 1), (9.0, 4, 4), (1.0, 1, 1)]
)
def test_a_quota_counts_in_parts_for_streams_and_whole_for_teams(quota, count, whole) -> None:
    allowance = CpuAllowance((0, 1, 2, 3), quota)
    assert (allowance.count, allowance.whole_count) == (count, whole)


def test_the_unified_hierarchy_may_be_mounted_beside_those_of_v1() -> None:
    files = {"/sys/fs/cgroup/unified/app/cpu.max": "150000 100000"}
    assert cgroup_quota("1:cpu:/\n0::/app\n", files.get) == 1.5


@pytest.mark.parametrize("count", range(1, 8))
def test_parts_are_disjoint_and_hold_every_cpu(count: int) -> None:
    cpus = (0, 1, 2, 5, 6, 7, 9)
    parts = [part_of_allowance(CpuAllowance(cpus, 3.5), index, count) for index in range(count)]
    assert tuple(cpu for part in parts for cpu in part.cpus) == cpus
    assert {len(part.cpus) for part in parts} <= {7 // count, 7 // count + 1}
    assert sum(part.quota or 0 for part in parts) == pytest.approx(3.5)


def test_a_block_asks_the_system_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(path: str) -> str | None:
        asked.append(path)
        return None

    monkeypatch.setattr("aioinfer.executors.cpu_allowance.read_text", read)
    with allowance_kept():
        before = len(asked)
        with allowance_kept():
            assert allowed_cpus() is allowed_cpus()
        assert allowed_cpus() is allowed_cpus()
        assert len(asked) == before
    allowed_cpus()
    assert len(asked) > before


def test_a_block_holds_on_its_own_thread_only() -> None:
    seen = []
    with allowance_kept():
        here = allowed_cpus()
        thread = threading.Thread(target=lambda: seen.append(allowed_cpus()), daemon=True)
        thread.start()
        thread.join()
    assert seen[0] == here
    assert seen[0] is not here
