from __future__ import annotations

from pathlib import Path

import pytest

from aioinfer.executors import CpuLoad
from aioinfer.executors.cpu_load import idle_ticks

STAT = """\
cpu  400 0 80 900 30 0 0 5 0 0
cpu0 100 0 20 500 10 0 0 5 0 0
cpu1 200 0 30 300 20 0 0 0 0 0
cpu12 100 0 30 100 0 0 0 0 0 0
intr 295878 0 0
cpu2 1 1 1 1 1 1 1 1
"""


@pytest.mark.parametrize(
    ("cpus", "ticks"), [({0}, 510), ({0, 1}, 830), ({12}, 100), ({0, 1, 12}, 930)]
)
def test_a_cpu_that_waits_for_a_disk_is_as_free_as_an_idle_one(cpus: set[int], ticks: int) -> None:
    assert idle_ticks(STAT, cpus) == ticks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cpu  1 2 3 4 5\n",
        "cpu0 0 0 0 0 0 0 0\n",  # a sandbox that makes it up
        "cpu0 1 2 3 4\n",
        "cpu0 1 2 3 many 5\n",
        "cpu1 1 2 3 4 5\n",  # another one
        "cpux 1 2 3 4 5\n",
    ],
)
def test_what_does_not_tell_is_no_number(text: str) -> None:
    assert idle_ticks(text, {0}) is None


def test_the_system_tells_how_many_cpus_were_idle() -> None:
    load = CpuLoad()
    end = load._at_s
    while load._at_s <= end:
        idle = load.idle_cpus()
    assert idle is None or 0.0 <= idle <= len(load._cpus)


def test_a_system_that_hides_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    load = CpuLoad()
    load.restart()
    assert load.idle_cpus() is None
