"""The account of a control group, from the texts of its files."""

from __future__ import annotations

import pytest

from aioinfer.executors import quota_meter
from aioinfer.executors.cpu_allowance import QuotaGroup
from aioinfer.executors.quota_meter import LIMIT_NS, QuotaMeter, QuotaReading, parse_cpu_stat

MS = 1_000_000
V1_STAT = "nr_periods 40\nnr_throttled 3\nthrottled_time 2865366\nnr_bursts 0\nburst_time 0\n"
V2_STAT = "usage_usec 6645\nuser_usec 6016\nnr_periods 9\nnr_throttled 2\nthrottled_usec 31\n"
V1 = QuotaGroup("/cpu/box", False, 150 * MS, 100 * MS)
V2 = QuotaGroup("/box", True, 150 * MS, 100 * MS)


@pytest.mark.parametrize(
    ("text", "account"),
    [
        (V1_STAT, (40, 2865366, None)),
        (V2_STAT, (9, 31_000, 6_645_000)),
        ("usage_usec 6645\nuser_usec 6016\n", None),  # without a controller
        ("nr_periods 40\n", None),
        ("nr_periods many\nthrottled_time 0\n", None),
        ("", None),
    ],
)
def test_cpu_stat_is_read_as_periods_and_times(
    text: str, account: tuple[int, int, int | None] | None
) -> None:
    assert parse_cpu_stat(text) == account


class Clocks:
    def __init__(self) -> None:
        self.now_ns, self.process_ns = 5 * MS, 77


def meter_of(group: QuotaGroup, files: dict[str, str], clocks: Clocks) -> QuotaMeter:
    return QuotaMeter(
        group,
        files.get,
        clock=lambda: clocks.now_ns,
        process_clock=lambda: clocks.process_ns,
    )


def test_v2_has_all_in_one_file() -> None:
    meter = meter_of(V2, {"/box/cpu.stat": V2_STAT}, Clocks())
    assert meter.reading() == QuotaReading(5 * MS, 9, 6_645_000, 31_000, 150 * MS, 100 * MS)


def test_v1_has_what_was_used_in_a_file_of_another_controller() -> None:
    files = {"/cpu/box/cpu.stat": V1_STAT, "/cpu/box/cpuacct.usage": "123456\n"}
    assert meter_of(V1, files, Clocks()).reading() == QuotaReading(
        5 * MS, 40, 123456, 2865366, 150 * MS, 100 * MS
    )


def test_without_that_file_the_process_stands_for_its_group() -> None:
    reading = meter_of(V1, {"/cpu/box/cpu.stat": V1_STAT}, Clocks()).reading()
    assert reading is not None
    assert reading.used_ns == 77


def test_what_cannot_be_read_is_no_reading() -> None:
    assert meter_of(V2, {}, Clocks()).reading() is None


@pytest.mark.parametrize(
    ("limit", "quota_ns", "period_ns"),
    [("25000 10000", 25 * MS, 10 * MS), ("max 100000", 0, 100 * MS)],
)
def test_a_quota_that_changes_is_noticed_after_a_while(
    limit: str, quota_ns: int, period_ns: int
) -> None:
    files, clocks = {"/box/cpu.stat": V2_STAT, "/box/cpu.max": "150000 100000"}, Clocks()
    meter = meter_of(V2, files, clocks)
    files["/box/cpu.max"] = limit
    clocks.now_ns += LIMIT_NS - 1
    early = meter.reading()
    clocks.now_ns += 1
    late = meter.reading()
    assert early is not None
    assert late is not None
    assert early[-2:] == (150 * MS, 100 * MS)
    assert late[-2:] == (quota_ns, period_ns)


@pytest.mark.parametrize(
    ("group", "is_open"),
    [
        (V1, True),
        (None, False),
        (QuotaGroup("/cpu/box", False, 400 * MS, 100 * MS), False),  # no limit
        (QuotaGroup("/cpu/other", False, 150 * MS, 100 * MS), False),
    ],
)
def test_there_is_a_meter_where_a_quota_bounds_and_tells(
    group: QuotaGroup | None, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_meter, "own_group", lambda: group)
    monkeypatch.setattr(quota_meter.os, "cpu_count", lambda: 4)
    files = {"/cpu/box/cpu.stat": V1_STAT}
    monkeypatch.setattr(QuotaMeter.__init__, "__defaults__", (files.get,))
    assert (QuotaMeter.open() is not None) is is_open
