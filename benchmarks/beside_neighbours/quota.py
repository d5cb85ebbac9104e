"""Control groups that limit how many CPUs' time a process gets, cgroup v1 and v2.

Sources: "CFS Bandwidth Control" and "Control Group v2" in the Linux kernel's documentation.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000  # the kernel's default, and that of containers
EMPTY_TIMEOUT_S = 5.0  # a group counts a process until the kernel has cleaned up after it
RETRY_S = 0.02

NAME = "aioinfer-neighbours-"  # then the id of the process that made it, and a number

_numbers = itertools.count()


class QuotaError(Exception):
    """A quota that cannot be had here, with the reason."""


class Place(NamedTuple):
    """A folder that a group can be made in, and whether it speaks the v2 format."""

    folder: Path
    is_v2: bool


def places(membership: str, root: Path = ROOT) -> list[Place]:
    """List where a group with a quota may be made: below the process's own group, or at the root.

    membership is the text of /proc/self/cgroup.
    """
    found = []
    for line in membership.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = hierarchy == "0" and not controllers
        if is_v2 or "cpu" in controllers.split(","):
            mount = root if is_v2 else root / controllers
            own = mount / path.lstrip("/")
            found += [Place(folder, is_v2) for folder in (own, mount) if ".." not in own.parts]
    return list(dict.fromkeys(found))


def settings_of(quota: float, is_v2: bool) -> dict[str, str]:
    """Give the files of a group that set the quota, and what is written to each."""
    quota_us = round(quota * PERIOD_US)
    if is_v2:
        return {"cpu.max": f"{quota_us} {PERIOD_US}"}
    return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}


@contextlib.contextmanager
def limited(quota: float | None) -> Iterator[Path | None]:
    """Make a group with a number of CPUs, and remove it at the end; None makes none.

    A process joins by its id, see ``join``, and must have ended when the block does. Raises
    QuotaError where no group can be made.
    """
    if quota is None:
        yield None
        return
    group = made(quota, places(MEMBERSHIP.read_text(encoding="utf-8")))
    try:
        yield group
    finally:
        removed(group)


def join(group: Path | None, process_id: int) -> None:
    if group is not None:
        (group / "cgroup.procs").write_text(str(process_id), encoding="utf-8")


def refusal(quota: float | None) -> str | None:
    """Say why there can be no such quota here; None if there can."""
    try:
        with limited(quota):
            return None
    except (OSError, QuotaError) as error:
        return str(error)


def made(quota: float, where: Sequence[Place]) -> Path:
    """Make a group in the first place that allows it."""
    reasons = []
    for place in where:
        if not (place.folder / "cgroup.procs").exists():
            reasons.append(f"{place.folder} is no control group")
            continue
        group = place.folder / f"{NAME}{os.getpid()}-{next(_numbers)}"
        sweep(place.folder)
        try:
            group.mkdir()
        except OSError as error:
            reasons.append(f"{place.folder}: {error.strerror}")
            continue
        try:
            for name, text in settings_of(quota, place.is_v2).items():
                if not (group / name).exists():
                    raise QuotaError(f"{place.folder} gives its groups no {name}")
                (group / name).write_text(text, encoding="utf-8")
        except (OSError, QuotaError) as error:
            group.rmdir()
            reasons.append(str(error))
        else:
            return group
    raise QuotaError("no group with a CPU quota: " + ("; ".join(reasons) or "no CPU controller"))


def sweep(folder: Path) -> None:
    """Remove the groups of processes that were killed before they could."""
    for group in folder.glob(f"{NAME}*-*"):
        maker = group.name.removeprefix(NAME).partition("-")[0]
        if not Path("/proc", maker).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def removed(group: Path) -> None:
    until_s = time.monotonic() + EMPTY_TIMEOUT_S
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(RETRY_S)
        else:
            return
