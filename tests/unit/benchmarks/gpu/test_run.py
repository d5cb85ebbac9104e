"""The runner of the benchmarks on a GPU: limits of time, failures that do not end it, results."""

import importlib.util
import json
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


def test_a_program_runs_for_what_is_left_and_not_longer_than_its_own_limit(run: ModuleType) -> None:
    case = run.Case("resnet50", 240.0)
    assert run.limit_s(case, float("inf")) == 240.0
    assert run.limit_s(case, 100.0) == 100.0
    assert run.limit_s(case, run.LEAST_S - 1) is None


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

    kept: list[str] = []
    case = run.Case("transfers", 60.0)
    outcome = run.run_case(
        case, 30.0, "CUDA", tmp_path, lambda name, file: kept.append(name), run=fake
    )
    assert kept == ["transfers"]
    assert (outcome.text, outcome.is_failure, outcome.row_count) == (text, is_failure, 1)


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


def test_a_program_that_runs_on_is_stopped(run: ModuleType) -> None:
    assert run.run_limited([sys.executable, "-c", "import signal; signal.pause()"], 0.2) is None


def test_a_status_is_passed_on(run: ModuleType) -> None:
    assert run.run_limited([sys.executable, "-c", "raise SystemExit(3)"], 30.0) == 3


def test_names_choose_programs_in_their_own_order(run: ModuleType) -> None:
    assert [case.name for case in run.chosen(["transfers", "device_facts"])] == [
        "device_facts",
        "transfers",
    ]
    assert run.chosen([]) == list(run.CASES)
    with pytest.raises(ValueError, match="unknown: speed; there are device_facts"):
        run.chosen(["speed"])


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
    printed = capsys.readouterr().out
    assert "failed with status 1" in printed
    assert "ended" in printed


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
