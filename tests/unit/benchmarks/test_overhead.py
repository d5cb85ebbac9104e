"""The benchmark of what awaiting costs: its figures, its peers, and a short measurement."""

import asyncio
import importlib
import json
import sys
from pathlib import Path

import pytest

from unit.backends.cpu.comparing import missing_reason

pytest.importorskip("onnxruntime")
overhead = importlib.import_module("overhead")
peers = importlib.import_module("overhead_peers")


def test_ratios_are_medians_of_the_rounds_ratios() -> None:
    measured = {
        "CPU network.infer": [1.0, 2.0, 4.0],
        peers.POOL: [3.0, 8.0, 8.0],
        peers.QUEUE: [10.0, 10.0, 10.0],
    }
    assert overhead.ratios_of("CPU network.infer", measured) == {peers.POOL: 3.0, peers.QUEUE: 5.0}


def test_a_session_is_held_against_run_in_executor_only() -> None:
    way = "ONNXRUNTIME request.infer"
    measured = {way: [1.0], peers.EXECUTOR: [2.0], peers.RUN_ASYNC: [9.0], peers.POOL: [3.0]}
    assert overhead.ratios_of(way, measured) == {peers.EXECUTOR: 2.0, peers.POOL: 3.0}
    assert overhead.ratios_of(peers.EXECUTOR, measured) == {}


def test_a_row_says_how_far_the_nearest_rival_is() -> None:
    times = overhead.Times(request_us={"CPU network.infer": [5.0], peers.POOL: [20.0]})
    row, peer = overhead.rows_of(times, overhead.Setting("uvloop", 64, 10, 1))
    assert row.flat()["least_ratio"] == 4.0
    assert row.flat()["throughput"] == 200_000
    assert "least_ratio" not in peer.flat()


async def test_answers_that_come_together_cost_one_wake_up() -> None:
    loop = asyncio.get_running_loop()
    calls: list[object] = []

    class Counted:
        def call_soon_threadsafe(self, call: object) -> None:
            calls.append(call)
            loop.call_soon(call)  # type: ignore[arg-type]

    mailbox = peers.Mailbox(Counted())
    first, second, failed = loop.create_future(), loop.create_future(), loop.create_future()
    mailbox.post(first, 1)
    mailbox.post(second, 2)
    mailbox.post(failed, ValueError("no"))
    assert (await first, await second) == (1, 2)
    with pytest.raises(ValueError, match="no"):
        await failed
    assert len(calls) == 1


@pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
def test_a_short_measurement_writes_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--loops", "uvloop", "--tasks", "1", "--requests", "20", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["overhead.py", *options, "--json", str(file)])
    overhead.main()
    written = json.loads(file.read_text(encoding="utf-8"))
    rows = {row["way"]: row for row in written["rows"]}
    assert rows.keys() | written["left_out"].keys() == set(overhead.WAYS)
    ours = rows["CPU network.infer"]
    assert ours["least_ratio"] == pytest.approx(min(ours["ratios"].values()))
    assert rows[peers.RUN_ASYNC]["p50_us"] > 0
