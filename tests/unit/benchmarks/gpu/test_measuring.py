"""What the benchmarks on a GPU share: rows, verdicts, tables, and files that survive a stop."""

import io
import json
import math
import sys
from pathlib import Path

import pytest
from measuring import Settings, interleaved, percentile, run_benchmark, set_count
from reporting import Report, Row, left_out, number_text, table_of
from rich.console import Console


@pytest.mark.parametrize(
    ("unit", "measured", "is_met"),
    [
        ("/s", 41_000.0, True),
        ("requests/s", 3999.0, False),
        ("GB/s", 50.0, False),
        ("us", 41_000.0, False),
        ("ms", 0.4, True),
    ],
)
def test_more_is_better_for_rates_and_less_for_times(
    unit: str, measured: float, is_met: bool
) -> None:
    assert Row("x", unit, measured, wanted=40_000.0 if measured > 1 else 0.5).is_met is is_met


def test_nothing_is_judged_where_nothing_is_wanted_or_measured() -> None:
    assert Row("x", "us", 1.0).is_met is None
    assert Row("x", "us", None, wanted=1.0).is_met is None
    assert Row("x", "us", None, predicted=1.0).ratio is None
    assert Row("x", "us", 3.0, predicted=2.0).ratio == 1.5


def test_each_row_is_in_the_file_at_once(tmp_path: Path) -> None:
    report = Report("case", "a GPU", tmp_path / "rows.json")
    report.add("copy", 2.0, "us", predicted=1.0)
    assert len(json.loads(report.file.read_text())["rows"]) == 1  # type: ignore[union-attr]
    report.refuse("product", ValueError("too large\nand more"))
    kept = json.loads((tmp_path / "rows.json").read_text())
    assert kept["benchmark"] == "gpu/case"
    assert kept["device"] == "a GPU"
    assert {"date", "versions", "facts"} <= kept.keys()
    assert [row["note"] for row in kept["rows"]] == ["", "ValueError: too large"]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]


def test_the_table_puts_measured_beside_predicted_and_names_what_is_missing() -> None:
    report = Report("resnet50", "a GPU")
    report.add("batch 256", 42_000.0, "/s", predicted=49_516.0, wanted=40_000.0)
    report.add("batch 1", 300.0, "us", predicted=208.0)
    report.refuse("batch 8", "left out: no time")
    text = io.StringIO()
    Console(file=text, width=120).print(table_of(report))
    large, small = (line for line in text.getvalue().splitlines() if "batch" in line)
    for word in ("batch 256", "49,516", "42,000", "0.85", "40,000", "met"):
        assert word in large
    for word in ("batch 1 ", "208", "300", "1.44"):
        assert word in small
    assert left_out(report) == ["not measured: batch 8: left out: no time"]


def test_ways_take_turns_and_give_the_median_of_one() -> None:
    calls: list[tuple[str, int]] = []
    ways = {name: (lambda count, name=name: calls.append((name, count))) for name in "ab"}
    taken = interleaved(ways, rounds=3, round_s=1e-6)
    assert list(taken) == ["a", "b"]
    assert all(one_us > 0 for one_us in taken.values())
    timed = [name for name, _ in calls[4:]]
    assert timed == ["b", "a", "a", "b", "b", "a"]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (50.0, 99.0)
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(
    ("size_bytes", "count"), [(0, 64), (150_528, 64), (8 << 20, 16), (1 << 30, 2)]
)
def test_sets_of_inputs_are_more_than_a_cache_holds(size_bytes: int, count: int) -> None:
    assert set_count(size_bytes) == count


@pytest.mark.parametrize(
    ("number", "text"), [(None, "-"), (0.5, "0.5"), (1234.5, "1,234"), (3.14159, "3.142")]
)
def test_numbers_have_four_digits(number: float | None, text: str) -> None:
    assert number_text(number) == text


def test_there_is_time_until_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measuring.time.monotonic", lambda: 100.0)
    assert Settings("CUDA", 1, 0.1, until_s=130.0).has_time(20.0)
    assert not Settings("CUDA", 1, 0.1, until_s=110.0).has_time(20.0)
    assert Settings("CUDA", 1, 0.1, until_s=math.inf).has_time(1e9)


def test_without_a_device_a_program_says_so_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["program.py", "--json", str(tmp_path / "rows.json")])
    run_benchmark("transfers", _unwanted, "Copies.", lambda device: f"no {device} here")
    assert capsys.readouterr().out == "transfers: nothing to measure here: no CUDA here\n"
    assert list(tmp_path.iterdir()) == []


def _unwanted(report: Report, settings: Settings) -> None:
    raise AssertionError("there is no device")


def test_rows_survive_a_program_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(report: Report, settings: Settings) -> None:
        assert settings.rounds == 2
        assert settings.has_time(1.0)
        report.add("first", 1.0, "us")
        raise RuntimeError("an illegal access")

    file = tmp_path / "rows.json"
    monkeypatch.setattr("measuring.device_name", lambda device: "a GPU")
    monkeypatch.setattr(sys, "argv", ["program.py", "--json", str(file), "--rounds", "2"])
    with pytest.raises(RuntimeError, match="illegal"):
        run_benchmark("case", measure, "A case.", lambda device: None)
    assert [row["what"] for row in json.loads(file.read_text())["rows"]] == ["first"]
    assert "first" in capsys.readouterr().out
