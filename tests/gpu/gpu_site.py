"""The folders that make a machine without network and without installs ready for the ladder.

Wheels that ``make gpu-wheels`` has fetched elsewhere are unpacked into one folder, and the parts of
the package are put together as the build configuration says, so that nothing is installed. Standard
library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["copy_project", "install_wheels", "prepare"]

ROOT = Path(__file__).resolve().parents[2]
FALLBACK = "fallback"
"""The folder of wheels that are used where what the machine has does not work."""
_WORKS = "import nvmath.bindings.cublasLt"
_LIMIT_S = 40.0

Say = Callable[[str], None]


def prepare(site: Path, wheels: Path, say: Say) -> list[Path]:
    """Make folders below ``site``, and return what belongs on the path. Says what goes wrong."""
    path = [site / "project"]
    copy_project(ROOT, path[0])
    say(f"the project, from {ROOT}")
    if install_wheels(wheels, site / "wheels", say):
        path.append(site / "wheels")
        fallback = wheels / FALLBACK
        works = _runs([sys.executable, "-P", "-c", _WORKS], path, say)
        if not works and install_wheels(fallback, site / FALLBACK, say):
            path.append(site / FALLBACK)
    return path


def copy_project(root: Path, target: Path) -> None:
    """Put the parts of the package together, and say which devices there are as a wheel does."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    for name in sorted(folders):  # a package comes before its parts
        shutil.copytree(
            root / folders[name],
            target.joinpath(*name.split(".")),
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    project = settings["project"]
    info = target / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    told = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(told, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {found}" for name, found in entries.items())]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def install_wheels(wheels: Path, target: Path, say: Say) -> bool:
    """Unpack all wheels of a folder into another, without network; False if there are none."""
    files = sorted(wheels.glob("*.whl"))
    if not files:
        say(f"no wheels in {wheels}: what is installed here has to do")
        return False
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(target)]
    if not _runs([*pip, *options, *map(str, files)], [], say):
        return False
    say(f"wheels: {', '.join(file.name for file in files)}")
    return True


def _runs(command: Sequence[str], path: Sequence[Path], say: Say) -> bool:
    """Say what a command printed if it fails."""
    joined = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            env={**os.environ, "PYTHONPATH": joined},
        )
    except subprocess.TimeoutExpired:
        say(f"{' '.join(command)} takes longer than {_LIMIT_S:.0f} s")
        return False
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        say(f"{' '.join(command[1:])}: " + "\n".join(said))
    return done.returncode == 0
