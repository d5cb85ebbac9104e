"""The runner of the benchmarks on a GPU: limits of time, failures that do not end it, results."""

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Program = Callable[[str], ModuleType]
ROWS = {"rows": [{"what": "copy", "unit": "us", "measured": 1.0}]}


@pytest.fixture
def run(program: Program) -> ModuleType:
    return program("run")


def test_every_program_is_there_and_takes_json(run: ModuleType) -> None:
    texts = [(run.FOLDER / f"{case.name}.py").read_text(encoding="utf-8") for case in run.CASES]
    assert all("run_benchmark(" in text for text in texts)
    programs = {
        file.stem
        for file in run.FOLDER.glob("*.py")
        if 'if __name__ == "__main__"' in file.read_text(encoding="utf-8")
    }
    assert programs == {case.name for case in run.CASES} | {"run"}


@pytest.mark.parametrize(("left_s", "limit_s"), [(math.inf, 240.0), (100.0, 100.0)])
def test_a_program_runs_for_what_is_left_and_not_longer_than_its_own_limit(
    run: ModuleType, tmp_path: Path, left_s: float, limit_s: float
) -> None:
    limits: list[float] = []

    def fake(command: Sequence[str], limit: float) -> int:
        limits.append(limit)
        return 1

    run.run_case(run.Case("bert", 240.0), left_s, "CUDA", tmp_path, _not_to_be_kept, run=fake)
    assert limits == [limit_s]


def test_a_program_is_told_to_end_before_it_is_stopped(run: ModuleType, tmp_path: Path) -> None:
    command = run.command_of(run.Case("transfers", 60.0), tmp_path / "x.json", "CUDA.1", 60.0)
    assert command[0] == sys.executable
    assert command[command.index("--seconds") + 1] == "50"
    assert command[command.index("--device") + 1] == "CUDA.1"


@pytest.mark.parametrize(
    ("status", "text", "is_failure"),
    [(0, "ended", False), (1, "failed with status 1", True), (None, "stopped after 30 s", True)],
)
def test_rows_are_kept_however_a_program_ends(
    run: ModuleType, tmp_path: Path, status: int | None, text: str, is_failure: bool
) -> None:
    def fake(command: Sequence[str], limit: float) -> int | None:
        Path(command[command.index("--json") + 1]).write_text(json.dumps(ROWS))
        return status

    kept: list[tuple[str, int]] = []
    case = run.Case("transfers", 60.0)
    outcome = run.run_case(
        case,
        30.0,
        "CUDA",
        tmp_path,
        lambda name, file: kept.append((name, len(run.rows_of(file)))),
        run=fake,
    )
    assert kept == [("transfers", 1)]
    assert (outcome.text, outcome.is_failure) == (text, is_failure)


def test_a_program_that_measures_nothing_where_a_gpu_is_has_failed(
    run: ModuleType, tmp_path: Path
) -> None:
    outcome = run.run_case(
        run.CASES[0], 30.0, "CUDA", tmp_path, _not_to_be_kept, run=lambda *_given: 0
    )
    assert outcome.is_failure
    assert outcome.text == "found nothing to measure"


def _not_to_be_kept(name: str, file: Path) -> None:
    raise AssertionError(f"{name} has no rows")


def test_without_a_gpu_the_runner_says_so_and_has_not_failed(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "device_reason", lambda device: "no driver")
    monkeypatch.setattr(run, "cupy_reason", lambda device: "no CuPy")
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 0
    assert capsys.readouterr().out == "benchmarks/gpu: nothing to measure here: no driver\n"


def test_others_go_on_after_a_failure_and_results_are_kept(
    run: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fake(command: Sequence[str], limit: float) -> int:
        name = Path(command[1]).stem
        if name != "transfers":
            Path(command[command.index("--json") + 1]).write_text(json.dumps(ROWS))
        return int(name == "transfers")

    def run_fake(*given: Any) -> Any:
        return real(*given, run=fake)

    real = run.run_case
    monkeypatch.setattr(run, "run_case", run_fake)
    monkeypatch.setattr(run, "device_reason", lambda device: None)
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "transfers", "overlap", "--save"])
    assert run.main() == 1
    (kept,) = tmp_path.iterdir()
    assert kept.name.endswith("-gpu-overlap.json")
    assert json.loads(kept.read_text()) == ROWS
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["transfers", "failed", "with", "status", "1", "0", "0"] in table
    assert ["overlap", "ended", "0", "1"] in table


def test_results_are_no_cases_of_the_other_benchmarks(run: ModuleType, tmp_path: Path) -> None:
    """The runner of the folder above reads that folder of results, and must pass over these."""
    spec = importlib.util.spec_from_file_location("benchmarks_run", run.FOLDER.parent / "run.py")
    assert spec is not None
    assert spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    (tmp_path / "2026-01-01-gpu-overlap.json").write_text(json.dumps(ROWS))
    other.RESULTS = tmp_path
    assert other.last_results(other.machine()) == {}
    assert not {case.name for case in run.CASES} - {"overlap"} & set(other.CASES)
