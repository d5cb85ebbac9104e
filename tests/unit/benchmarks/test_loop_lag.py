"""The benchmark of event loops' lags, on a clock of the test's and on a tiny network."""

import asyncio
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from unit.backends.cpu.comparing import missing_reason

pytest.importorskip("onnxruntime")
lag = importlib.import_module("loop_lag")

ROW = lag.Row("load", "m", "CPU", "asyncio", 9, 0.1, 4.9, 9.0, 4.9, 0.1)


async def test_all_ticks_that_were_due_while_the_loop_stood_still_are_late() -> None:
    now_s, sleeps, lags = 0.0, 0, lag.Lags()

    async def sleep(seconds: float) -> None:
        nonlocal now_s, sleeps
        sleeps += 1
        now_s += seconds
        if sleeps == 2:
            now_s += 0.005
        if sleeps == 4:
            probe.stop()

    probe = lag.Probe(lags, is_blaming=False, clock=lambda: now_s, sleep=sleep)
    await probe.run()
    assert lags.ticks == pytest.approx([0, 5, 4, 3, 2, 1, 0, 0, 0], abs=1e-6)
    assert all(ours <= tick + 1e-6 for ours, tick in zip(lags.ours, lags.ticks, strict=True))


async def test_call_soon_waits_for_what_was_ready_before() -> None:
    now_s, lags = 0.0, lag.Lags()

    def compute() -> None:
        nonlocal now_s
        now_s += 0.003
        probe.stop()

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    probe = lag.Probe(lags, is_blaming=False, clock=lambda: now_s, sleep=sleep)
    task = asyncio.create_task(probe.run())
    asyncio.get_running_loop().call_soon(compute)
    await task
    assert lags.soon == pytest.approx([3.0])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW, "< 5: kept"),
        (replace(ROW, p99_ms=5.1), "< 5: ours kept"),
        (replace(ROW, p99_ms=5.1, ours_p99_ms=5.1), "< 5: MISSED"),
        (replace(ROW, kind="loading", p99_ms=19.9), "< 20: kept"),
        (replace(ROW, kind="idle", p99_ms=99.0), ""),
    ],
)
def test_the_verdict_tells_the_machine_from_us(row: object, said: str) -> None:
    assert lag.verdict(row) == said


@pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
def test_a_short_measurement_writes_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--load-models", lag.TINY, "--loading-models", lag.TINY, "--devices", "CPU"]
    options += ["--seconds", "0.02", "--loads", "1", "--blame", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["loop_lag.py", *options])
    lag.main()
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [row["kind"] for row in rows] == ["idle", "hashing threads", "load", "loading"]
    for row in rows:
        assert 0 <= row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["ours_p99_ms"] <= row["p99_ms"]
