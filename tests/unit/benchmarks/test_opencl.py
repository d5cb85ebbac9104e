"""The benchmark of OPENCL beside numpy: its figures, and a short measurement."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from presence import skip_if_missing

program = importlib.import_module("opencl")


def test_ratios_are_medians_of_the_rounds_ratios() -> None:
    first, second = program.rows_of("job", {"numpy": [2.0, 3.0, 8.0], "OPENCL": [4.0, 4.0, 4.0]})
    assert (first.request_us, first.ratio) == (3.0, 1.0)
    assert (second.request_us, second.ratio) == (4.0, 0.75)


def test_runs_in_flight_are_all_over_when_they_are_timed() -> None:
    started: list[int] = []

    class Request:
        def __init__(self, number: int) -> None:
            self.number, self.is_busy = number, False
            self.results = {"y": np.float32(number)}

        def start_async(self, given: object) -> None:
            assert not self.is_busy
            self.is_busy = True
            started.append(self.number)

        def wait(self) -> None:
            self.is_busy = False

    requests = [Request(number) for number in range(3)]
    program.in_flight(requests, np.zeros(1))(5)
    assert started == [0, 1, 2, 0, 1]
    assert not any(request.is_busy for request in requests)


def test_a_short_measurement_writes_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with aioinfer.Core() as core:
        skip_if_missing(core, "OPENCL")
    chance = np.random.default_rng(0)
    small = [program.product(chance, 8), program.chain(chance, 100)]
    monkeypatch.setattr(program, "jobs", lambda: small)
    file = tmp_path / "rows.json"
    monkeypatch.setattr(
        sys, "argv", ["opencl.py", "--rounds", "2", "--round-ms", "1", "--json", str(file)]
    )
    program.main()
    rows = json.loads(file.read_text())["rows"]
    assert [row["way"] for row in rows] == list(program.WAYS) * 2
    assert all(row["request_us"] > 0 and row["ratio"] > 0 for row in rows)
