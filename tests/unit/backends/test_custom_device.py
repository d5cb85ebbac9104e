"""A device of somebody else's package: built, installed and loaded without touching this one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).resolve().parents[3] / "examples" / "03_custom_device"


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the toy device into a folder of its own, from a copy of its sources."""
    pytest.importorskip("setuptools", reason="builds the toy's package with what is installed")
    folder = tmp_path_factory.mktemp("toy")
    shutil.copytree(TOY, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    target = folder / "installed"
    run("-m", "pip", "install", *options, "--target", str(target), "./source", cwd=folder)
    return target


def test_an_installed_package_is_a_device(installed: Path, tmp_path: Path) -> None:
    program = "import aioinfer; print(*aioinfer.Core().available_devices)"
    assert "TOY" in run("-c", program, cwd=tmp_path, path=installed).split()
    assert "TOY" not in run("-c", program, cwd=tmp_path).split()


@pytest.mark.exhaustive
def test_the_toy_passes_its_own_tests(installed: Path, tmp_path: Path) -> None:
    shutil.copy(TOY / "test_toy.py", tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:anyio", "-W", "ignore"]
    printed = run("-m", "pytest", *options, "test_toy.py", cwd=tmp_path, path=installed)
    assert " passed" in printed
    assert "failed" not in printed
