"""The wheel holds exactly the files of the tree, under the names they are imported by."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

import pytest

from architecture.tree import ROOT, installed_files, part_folders, pyproject

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("AIOINFER_WHEEL"):
        return Path(given)
    # A copy, because a wheel built in place takes deleted modules along from an old build/lib.
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in part_folders().values():
        shutil.copytree(folder, copy / folder.name, ignore=ignore)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    built = subprocess.run([*command, str(copy)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_holds_the_files_of_the_tree(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    held -= _extensions(held)
    missing = sorted(set(installed_files()) - held)
    assert not missing, f"name the packages, or the files as package data: {missing}"
    surplus = sorted(held - set(installed_files()))
    assert not surplus, f"in the wheel, but not in the tree: {surplus}"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux promises a compiler here")
def test_the_wheel_holds_the_native_extension(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        assert _extensions(archive.namelist()) == {"aioinfer/backends/cpu/native/_steps.abi3.so"}
    assert "-cp311-abi3-linux" in wheel.name


def _extensions(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.endswith((".so", ".pyd"))}


def test_the_wheel_holds_the_content_of_the_tree(wheel: Path) -> None:
    files = installed_files()
    with ZipFile(wheel) as archive:
        both = sorted(files.keys() & set(archive.namelist()))
        different = [name for name in both if archive.read(name) != files[name].read_bytes()]
    assert both
    assert different == []


def test_the_wheel_carries_licence_and_entry_points(wheel: Path) -> None:
    version = pyproject()["project"]["version"]
    info = f"aioinfer-{version}.dist-info"
    with ZipFile(wheel) as archive:
        assert f"{info}/licenses/LICENSE" in archive.namelist()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    for device in pyproject()["project"]["entry-points"]["aioinfer.backends"]:
        assert f"\n{device} = " in entry_points
