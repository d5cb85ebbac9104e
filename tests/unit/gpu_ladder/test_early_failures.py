"""Failures are told when they happen, and tests after one that broke the device still run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpu.ladder_steps import STEPS, command_of, environment_of

ROOT = Path(__file__).parents[3]
BREAKING = """
import os, signal, sys, time, types

def test_right():
    print("a number of interest")

def test_wrong():
    print("said before")
    assert 1 == 2

def test_that_breaks_the_device():
    def refuse():
        raise RuntimeError("an error that stays")
    runtime = types.SimpleNamespace(deviceSynchronize=refuse)
    sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    assert False

def test_after_that():
    assert "cupy" not in sys.modules
"""
CRASHING = """
import os, time

def test_that_crashes():
    os.abort()

def test_that_hangs():
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass

def test_after_that():
    pass
"""


def run_step(folder: Path, text: str, limit_s: float) -> str:
    """Run a file as the ladder runs those of ``tests/gpu``; give all that is said."""
    file = folder / "test_given.py"
    file.write_text(text, encoding="utf-8")
    step = next(step for step in STEPS if step.name == "graphs")
    command = command_of(step, limit_s, folder)
    path = [ROOT / "tests", ROOT / "benchmarks"]
    done = subprocess.run(
        [str(file) if item.startswith("tests/") else item for item in command],
        cwd=ROOT,
        env=environment_of(step, {}, path, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=170,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


@pytest.mark.exhaustive
def test_a_broken_device_ends_its_process_and_not_the_rest(tmp_path: Path) -> None:
    said = run_step(tmp_path, BREAKING, 40.0)
    told, _, summary = said.partition("short test summary")
    assert "a number of interest" in told
    assert "said before" in told
    assert "assert 1 == 2" in told
    assert told.index("assert 1 == 2") < told.index("the device is broken since")
    assert "2 passed" in summary


@pytest.mark.exhaustive
def test_a_test_that_crashes_or_hangs_shows_where_and_the_rest_runs(tmp_path: Path) -> None:
    said = run_step(tmp_path, CRASHING, 8.0)
    assert "in test_that_crashes" in said
    assert "in test_that_hangs" in said
    assert "1 passed" in said


def test_the_interpreter_of_a_step_is_ours() -> None:
    assert {command_of(step, 20.0, Path("rows"))[0] for step in STEPS} == {sys.executable}
