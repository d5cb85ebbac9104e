"""The benchmark of requests in flight: its figures, and a short measurement."""

import json
import sys
from pathlib import Path

import in_flight
import pytest


def test_the_optimum_stands_between_fewer_and_more() -> None:
    assert in_flight.task_counts(1) == [1, 2, 4]
    assert in_flight.task_counts(4) == [4, 5, 8, 16]


def test_shares_are_of_the_best_in_the_same_round() -> None:
    assert in_flight.shares_of({1: [5.0, 20.0, 5.0], 2: [10.0, 10.0, 10.0]}) == {1: 0.5, 2: 1.0}


def test_a_short_measurement_writes_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--devices", "REFERENCE", "--widths", "8", "--rounds", "1", "--seconds", "0.05"]
    monkeypatch.setattr(sys, "argv", ["in_flight.py", *options, "--json", str(file)])
    in_flight.main()
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert {row["hint"] for row in rows} == {"LATENCY", "THROUGHPUT"}
    latency = [row for row in rows if row["hint"] == "LATENCY"]
    assert [row["task_count"] for row in latency] == [1, 2, 4]
    assert {row["optimal"] for row in latency} == {2}
