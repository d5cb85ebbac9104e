import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import aioinfer as package
from aioinfer.cli import query

Run = Callable[..., Any]

PROGRAM = [sys.executable, "-P", "-m", "aioinfer"]
READY = "[Step 9/9]"


def test_version(aioinfer: Run) -> None:
    finished = aioinfer("--version")
    assert (finished.code, finished.out) == (0, f"aioinfer {package.__version__}\n")


def test_help_is_no_error(aioinfer: Run) -> None:
    finished = aioinfer("benchmark", "--help")
    assert (finished.code, finished.err) == (0, "")
    assert "-niter" in finished.out


def test_without_a_command_it_shows_the_help(aioinfer: Run) -> None:
    finished = aioinfer()
    assert finished.code == 1
    for command in ("devices", "query", "benchmark"):
        assert command in finished.out


def test_debug_adds_the_traceback(aioinfer: Run) -> None:
    plain = aioinfer("query", "nix.onnx", "-d", "REFERENCE")
    assert "Traceback" not in plain.err
    debug = aioinfer("query", "nix.onnx", "-d", "REFERENCE", "--debug")
    assert debug.code == 1
    assert "Traceback" in debug.err
    assert debug.err.endswith(plain.err)


def test_an_unforeseen_error_is_one_line_too(
    aioinfer: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_parsed: Any) -> int:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(query, "run_query", fail)
    finished = aioinfer("query", "m.onnx")
    assert finished.code == 1
    assert finished.err == "error: ZeroDivisionError: division by zero (--debug shows where)\n"


def test_the_program_runs_on_its_own(digits: str) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-niter", "2"]
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Throughput:" in done.stdout


@pytest.mark.parametrize("api", ["sync", "async", "callback"])
def test_ctrl_c_ends_the_program_with_130(digits: str, api: str) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-t", "3600", "-api", api]
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        try:
            assert any(line.startswith(READY) for line in program.stdout)
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 130, err
    assert err == ""
    assert "interrupted; this is what was measured so far" in out
    assert "Count:" in out


def test_a_reader_that_goes_away_is_no_traceback(digits: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [*PROGRAM, "query", digits, "-d", "REFERENCE"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


def test_importing_the_package_does_not_import_the_command_line() -> None:
    probe = "import sys, aioinfer; print([m for m in sys.modules if m == 'rich' or '.cli' in m])"
    done = subprocess.run([sys.executable, "-P", "-c", probe], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
