"""The digits model, and the command line run inside the test's process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aioinfer.__main__ import main

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def digits() -> str:
    return str(DIGITS / "digits.onnx")


@pytest.fixture
def heldout() -> str:
    return str(DIGITS / "digits_heldout.npz")


@pytest.fixture
def aioinfer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    """Run ``aioinfer ARGUMENTS`` on a screen of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> Finished:
        code = main(arguments)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run
