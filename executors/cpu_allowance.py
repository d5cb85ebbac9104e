"""How many CPUs this process may use: its affinity mask, cut by a container's CPU quota.

The parsing is pure: it gets the texts of the kernel's files, or a function that reads them.
Sources: "Control Group v2" and "CFS Bandwidth Control" in the Linux kernel's documentation.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

_CGROUP_ROOT = PurePosixPath("/sys/fs/cgroup")  # where every distribution mounts them


class QuotaGroup(NamedTuple):
    """A control group that limits CPU time: its folder, its format, and the limit in force."""

    folder: str
    is_v2: bool
    quota_ns: int
    period_ns: int

    @property
    def cpus(self) -> float:
        return self.quota_ns / self.period_ns


@dataclass(frozen=True)
class CpuAllowance:
    """The CPUs that the process may run on, and for how many of them it may compute at a time."""

    cpus: tuple[int, ...]
    quota: float | None = None  # in CPUs; None is no limit

    @property
    def count(self) -> int:
        """How many threads can compute at a time, at least 1; a part of a CPU counts as one."""
        allowed = len(self.cpus)
        if self.quota is not None:
            allowed = min(allowed, math.ceil(self.quota))
        return max(1, allowed)

    @property
    def whole_count(self) -> int:
        """How many threads that wait for each other can all compute: whole CPUs, at least 1.

        With a part of a CPU more, all of them would stand still for a part of each period.
        """
        allowed = len(self.cpus)
        if self.quota is not None:
            allowed = min(allowed, math.floor(self.quota))
        return max(1, allowed)


class _Kept(threading.local):
    """The answer that holds on one thread; None: ask."""

    allowance: CpuAllowance | None = None


_kept = _Kept()


@contextmanager
def allowance_kept() -> Iterator[None]:
    """Ask the operating system once for all that this thread does inside; blocks may nest."""
    if _kept.allowance is not None:
        yield
        return
    _kept.allowance = allowed_cpus()
    try:
        yield
    finally:
        _kept.allowance = None


def allowed_cpus() -> CpuAllowance:
    """Ask the operating system what this process may use now. Any thread; reads a few files."""
    if _kept.allowance is not None:
        return _kept.allowance
    if hasattr(os, "sched_getaffinity"):
        # The process's id is that of its first thread; the calling one may be a pinned worker.
        cpus = tuple(sorted(os.sched_getaffinity(os.getpid())))
    else:
        cpus = tuple(range(os.cpu_count() or 1))
    group = own_group()
    return CpuAllowance(cpus, None if group is None else group.cpus)


def own_group() -> QuotaGroup | None:
    """Ask for the group that limits this process most. Any thread; reads a few files."""
    return limiting_group(read_text("/proc/self/cgroup") or "", read_text)


def limiting_group(membership: str, read: Callable[[str], str | None]) -> QuotaGroup | None:
    """Find the group with the smallest CPU quota on the way from a process's groups to the root.

    membership is the text of /proc/self/cgroup; read gives a file's text, or None where there is
    none. Inside a container the group's own path is often not visible but the root is, so every
    folder on the way counts.
    """
    groups = [
        group
        for folder, is_v2 in _group_folders(membership)
        if (group := group_at(folder, is_v2, read)) is not None
    ]
    return min(groups, key=lambda group: group.cpus, default=None)


def group_at(
    folder: str | PurePosixPath, is_v2: bool, read: Callable[[str], str | None]
) -> QuotaGroup | None:
    """Read what the group of one folder limits; None where it is no limit, and no group."""
    if is_v2:
        limit = parse_cpu_max(read(f"{folder}/cpu.max") or "")
    else:
        quota = read(f"{folder}/cpu.cfs_quota_us") or ""
        limit = parse_cfs_quota(quota, read(f"{folder}/cpu.cfs_period_us") or "")
    return None if limit is None else QuotaGroup(str(folder), is_v2, *limit)


def parse_cpu_max(text: str) -> tuple[int, int] | None:
    """Read a v2 ``cpu.max`` ("200000 100000", "max 100000") as quota and period in nanoseconds.

    None is no limit.
    """
    words = text.split()
    if len(words) != 2:
        return None
    return parse_cfs_quota(words[0], words[1])


def parse_cfs_quota(quota_us: str, period_us: str) -> tuple[int, int] | None:
    """Read the two numbers of v1, in microseconds, as nanoseconds; None as above, or nonsense."""
    try:
        quota, period = int(quota_us), int(period_us)
    except ValueError:
        return None
    return (quota * 1000, period * 1000) if quota > 0 and period > 0 else None


def cpus_of_stream(cpus: tuple[int, ...], thread_count: int, index: int) -> tuple[int, ...]:
    """Choose the CPUs that one pinned stream runs on: neighbours, disjoint while there are enough.

    With more threads than CPUs the streams wrap around and share; the choice is never empty.
    """
    first = index * thread_count
    return tuple(cpus[(first + k) % len(cpus)] for k in range(min(thread_count, len(cpus))))


def part_of_allowance(allowance: CpuAllowance, index: int, count: int) -> CpuAllowance:
    """Return one of ``count`` disjoint parts: neighbours, as many as the others have or one more.

    Each has its part of the quota. The count is at most that of the CPUs.
    """
    bounds = [len(allowance.cpus) * place // count for place in (index, index + 1)]
    quota = None if allowance.quota is None else allowance.quota / count
    return CpuAllowance(allowance.cpus[bounds[0] : bounds[1]], quota)


def _group_folders(membership: str) -> Iterator[tuple[PurePosixPath, bool]]:
    """Yield the folders that may limit the CPU, each with whether it speaks the v2 format."""
    for line in membership.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = hierarchy == "0" and not controllers
        if not is_v2 and "cpu" not in controllers.split(","):
            continue
        mounts = (
            [_CGROUP_ROOT, _CGROUP_ROOT / "unified"]
            if is_v2
            else [_CGROUP_ROOT / controllers, _CGROUP_ROOT / "cpu"]
        )
        below = [part for part in path.split("/") if part]
        if ".." in below:  # a group above the visible root: only the root can be asked
            below = []
        for mount in dict.fromkeys(mounts):
            for depth in range(len(below), -1, -1):
                yield mount.joinpath(*below[:depth]), is_v2


def read_text(path: str) -> str | None:
    """Read a file of the kernel's; None where it cannot be."""
    try:
        with open(path, "rb", buffering=0) as file:  # three times as quick as by Path
            return file.readall().decode()
    except (OSError, ValueError):
        return None
