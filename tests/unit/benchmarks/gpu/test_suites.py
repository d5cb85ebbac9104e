"""``make gpu``: what it runs, for how long, and what it says where there is no GPU."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu import suites
from gpu.suites import Outcome, Suite


def suite_named(name: str) -> Suite:
    (found,) = (suite for suite in suites.SUITES if suite.name == name)
    return found


def test_without_a_gpu_one_line_says_why_and_nothing_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites, "device_reason", lambda device: "CuPy sees no device")
    monkeypatch.setattr(suites, "IS_REQUIRED", False)
    assert suites.main([]) == 0
    assert capsys.readouterr().out == "make gpu: nothing was run: CuPy sees no device\n"


def test_a_gpu_that_should_be_there_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "device_reason", lambda device: "CuPy sees no device")
    monkeypatch.setattr(suites, "IS_REQUIRED", True)
    assert suites.main([]) == 1


def test_the_shared_suites_are_told_the_device() -> None:
    own = suites.environment_of(suite_named("conformance"), {"HOME": "x"})
    assert own["AIOINFER_CONFORMANCE_DEVICE"] == "CUDA"
    assert own["AIOINFER_REQUIRE_DEVICE"] == "1"
    assert own["HOME"] == "x"
    both = suites.environment_of(suite_named("hetero"), {})
    assert both["AIOINFER_CONFORMANCE_DEVICE"] == "HETERO:CUDA,REFERENCE"
    assert "AIOINFER_CONFORMANCE_DEVICE" not in suites.environment_of(suite_named("gpu"), {})


def test_all_that_is_run_is_there() -> None:
    paths = [path for suite in suites.SUITES for path in suite.tests if "/" in path]
    assert all((suites.ROOT / path).exists() for path in paths)
    benchmarks = suites.command_of(suite_named("benchmarks"), [], math.inf)
    assert (suites.ROOT / benchmarks[1]).exists()


def test_the_benchmarks_keep_to_what_is_left() -> None:
    command = suites.command_of(suite_named("benchmarks"), ["-x"], 315.0, ["--save"])
    assert command[command.index("--minutes") + 1] == "5.00"
    assert command[-1] == "--save"
    assert "-x" not in command
    assert "--minutes" not in suites.command_of(suite_named("benchmarks"), [], math.inf)


def test_options_of_pytest_stand_behind_two_dashes() -> None:
    assert suites.split_options(["gpu", "--", "-n", "8"]) == (["gpu"], ["-n", "8"])
    assert suites.split_options(["gpu"]) == (["gpu"], [])
    command = suites.command_of(suite_named("gpu"), ["-n", "8"], math.inf)
    assert command[:4] == [sys.executable, "-P", "-m", "pytest"]
    assert command[-3:] == ["tests/gpu", "-n", "8"]


@pytest.mark.parametrize(
    ("code", "limit_s", "text", "is_failure"),
    [
        ("print('fine')", math.inf, "passed", False),
        ("raise SystemExit(2)", 30.0, "failed with status 2", True),
        ("import signal; signal.pause()", 0.2, "stopped: no time", True),
    ],
)
def test_a_suite_ends_in_an_outcome_and_leaves_its_output(
    tmp_path: Path, code: str, limit_s: float, text: str, is_failure: bool
) -> None:
    log = tmp_path / "suite.log"
    outcome = suites.run_suite(Suite("gpu"), [sys.executable, "-c", code], limit_s, log)
    assert (outcome.text, outcome.is_failure) == (text, is_failure)
    if text == "passed":
        assert suites.last_lines(log) == "fine"


def test_suites_go_on_after_a_failure_and_the_status_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(suite: Suite, command: Sequence[str], left_s: float, log: Path | None) -> Outcome:
        ran.append(suite.name)
        return Outcome(suite.name, "failed with status 1", 1.0, suite.name == "gpu")

    monkeypatch.setattr(suites, "device_reason", lambda device: None)
    monkeypatch.setattr(suites, "run_suite", run)
    assert suites.main(["gpu", "property"]) == 1
    assert ran == ["gpu", "property"]
    assert suites.main(["property"]) == 0
    ran.clear()
    capsys.readouterr()
    assert suites.main(["--minutes", "0"]) == 0
    assert ran == []
    assert capsys.readouterr().out.count("left out: no time") == len(suites.SUITES)


def test_a_suite_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suites.main(["speed"])
    there = ", ".join(suite.name for suite in suites.SUITES)
    assert f"unknown: speed; there are {there}" in capsys.readouterr().err
