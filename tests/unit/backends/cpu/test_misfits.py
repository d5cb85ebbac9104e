"""What contradicts itself is refused by CPU's own layers, in a process that may die of it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from exhaustive import all_but
from unit.backends.cpu.misfits import CASES

_TESTS = Path(__file__).parents[3]
_IN_PROCESS = "AIOINFER_ONNX_IN_PROCESS"  # onnx's own code may end a process, too
_ENVIRONMENT = {key: value for key, value in os.environ.items() if key != _IN_PROCESS}


def _run(variant: str, names: list[str]) -> dict[str, str]:
    """Run cases in a process, and go on in another behind one that ends it."""
    found: dict[str, str] = {}
    while names:
        ended = subprocess.run(
            [sys.executable, "-m", "unit.backends.cpu.misfits", variant, *names],
            cwd=_TESTS,
            env=_ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        for line in ended.stdout.splitlines():
            name, _, text = line.partition("\t")
            found[name] = text or f"ended the process: {ended.returncode}\n{ended.stderr[-2000:]}"
        assert found, ended.stderr
        names = [name for name in names if name not in found]
    return found


@pytest.fixture(scope="module")
def outcomes() -> Callable[[str], dict[str, str]]:
    return functools.cache(lambda variant: _run(variant, list(CASES)))


@pytest.mark.parametrize("name", CASES)
def test_what_types_pretend_is_refused(
    outcomes: Callable[[str], dict[str, str]], name: str
) -> None:
    found = outcomes("pretended")[name]
    assert found.startswith("refused"), found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", all_but(["open"], ["open", "static", "declared"]))
def test_a_model_is_refused_or_right(
    outcomes: Callable[[str], dict[str, str]], variant: str, name: str
) -> None:
    found = outcomes(variant)[name]
    assert found.startswith(("refused", "right")), found
