"""What the figures of overlap say, and a short measurement of it."""

import importlib
import json
import sys
from pathlib import Path

import pytest
from overlap_figures import alone_ms, longest_path, overlap, slowest_ms

overlap_program = importlib.import_module("overlap")
device = importlib.import_module("overlap_device")

MS = 1_000_000
DIAMOND = {"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def test_the_longest_way_goes_through_one_branch() -> None:
    assert longest_path({"a": ["x"], "b": ["a"]}) == ["a", "b"]
    assert len(longest_path(DIAMOND)) == 3
    assert longest_path({**DIAMOND, "c": ["b"]}) == ["a", "b", "c", "d"]


def test_the_bound_is_the_slowest_stage_within_the_window() -> None:
    services = {
        "fast": [(2 * MS, 1 * MS), (4 * MS, 1 * MS)],
        "slow": [(1 * MS, 9 * MS), (3 * MS, 2 * MS), (5 * MS, 4 * MS)],
    }
    assert slowest_ms(services, 2 * MS, 5 * MS) == pytest.approx(3.0)


def test_full_overlap_is_a_request_for_each_service_time() -> None:
    services = {"a": [(at * MS, 2 * MS) for at in range(0, 20, 2)]}
    every_2_ms = [at * MS for at in range(1, 21, 2)]
    every_4_ms = [at * MS for at in range(1, 21, 4)]
    assert overlap(every_2_ms, services, 0, 20 * MS) == pytest.approx(1.0)
    assert overlap(every_4_ms, services, 0, 20 * MS) == pytest.approx(0.5)


def test_what_ends_outside_of_the_window_does_not_count() -> None:
    services = {"a": [(at * MS, 2 * MS) for at in range(0, 20, 2)]}
    ends_ns = [0, 1, 2, *(at * MS for at in range(4, 12, 2)), 19 * MS]
    assert overlap(ends_ns, services, 3 * MS, 12 * MS) == pytest.approx(1.0)


def test_alone_a_request_costs_its_latency_less_the_services_on_its_way() -> None:
    line = {"a": ["x"], "b": ["a"]}
    services = {"a": [(0, 2 * MS), (0, 1 * MS)], "b": [(0, 3 * MS), (0, 1 * MS)]}
    assert alone_ms([6 * MS, 3 * MS], services, line) == pytest.approx(1.0)


def test_branches_side_by_side_count_once() -> None:
    services = {"a": [(0, MS)], "b": [(0, 2 * MS)], "c": [(0, 5 * MS)], "d": [(0, MS)]}
    assert alone_ms([8 * MS], services, DIAMOND) == pytest.approx(1.0)


@pytest.mark.parametrize("series", ["timer", "native", "hetero", "diamond"])
def test_a_short_measurement_writes_rows(
    series: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    options = ["--series", series, "--ms", "0.2", "--rounds", "1", "--seconds", "0.05"]
    monkeypatch.setattr(overlap_program, "ALONE_COUNT", 3)
    monkeypatch.setattr(overlap_program, "sleep_exactly", lambda: None)  # this thread stays as is
    monkeypatch.setattr(sys, "argv", ["overlap.py", *options, "--json", str(file)])
    overlap_program.main()
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert {row["way"] for row in rows} == {"aioinfer", "queues"}
    for row in rows:
        assert row["series"] == series
        assert 0 < row["overlap"] < 2
        assert row["service_ms"] > 0
        assert row["wanted_overlap"] == 0.9


def test_the_diamond_is_cut_so_that_its_branches_can_run_side_by_side() -> None:
    (case,) = overlap_program.series_of(0.01)["diamond"]
    works = overlap_program.works_of(case)
    with overlap_program.aioinfer.Core() as core:
        core.register_plugin("TIMED", lambda core, name: device.TimedPlugin(core, name, works, 3))
        config = {"AFFINITY": dict(case.affinity)}
        model = overlap_program.model_of(case.needs)
        with core.load_network(model, case.device, config) as network:
            devices = [subgraph.device for subgraph in network.partition.subgraphs]
            assert devices.count("TIMED.2") == 2
            assert {"TIMED.0", "TIMED.1"} < set(devices)
