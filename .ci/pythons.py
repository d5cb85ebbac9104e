"""Run the tests on each Python that pyproject.toml names and this machine has: pythons.py [ARGS].

Interpreters are taken from PATH and from pyenv's versions; those that are not there are named at
the end. Each gets an environment of its own below build/pythons/. ARGS go to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "pythons"
EXTRAS = ".[test,cpu,examples,onnxruntime,opencl]"
TESTS = ["tests/unit", "tests/property"]
FIRST_FREE_THREADED = (3, 13)

VERSION = (
    "import sys, sysconfig; free = sysconfig.get_config_var('Py_GIL_DISABLED');"
    "print('%d.%d' % sys.version_info[:2] + ('t' if free else ''))"
)


def wanted_versions() -> list[str]:
    """List what the classifiers promise, oldest first; a t means a free-threaded build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    numbers = sorted(tuple(map(int, text.split("."))) for text in texts)
    return [
        f"{major}.{minor}{free}"
        for free in ("", "t")
        for major, minor in numbers
        if not free or (major, minor) >= FIRST_FREE_THREADED
    ]


def interpreter(version: str) -> str | None:
    """Find a Python that says of itself that it is this version."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = sorted(pyenv.glob(f"versions/{version.rstrip('t')}.*/bin"))
    on_path = shutil.which(name)
    for found in [on_path, *(str(folder / name) for folder in folders)]:
        if found is None or not Path(found).exists():
            continue
        said = subprocess.run([found, "-c", VERSION], capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return found
    return None


def outcome_of_tests(version: str, python: str, arguments: list[str]) -> str:
    """Install into an environment of its own and run pytest there."""
    environment = ENVIRONMENTS / version
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    own_python = str(environment / "bin" / "python")
    for step, command in {
        "no environment can be made": [python, "-m", "venv", str(environment)],
        "it cannot be installed": [own_python, *install, "-c", "constraints.txt", "-e", EXTRAS],
        "tests failed": [
            *(own_python, "-P", "-m", "pytest", "-p", "no:cacheprovider"),
            *("-n", "auto", "--maxprocesses=8", "--dist=worksteal"),
            *(arguments or ["-m", "not wheel and not exhaustive", *TESTS]),
        ],
    }.items():
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return step
    return "passed"


def main() -> int:
    """Run the tests on every interpreter that is there; 1 if one failed or none is there."""
    outcomes = {}
    for version in wanted_versions():
        python = interpreter(version)
        if python is None:
            outcomes[version] = "skipped: not installed here"
            continue
        print(f"\n=== Python {version}: {python}", flush=True)
        outcomes[version] = outcome_of_tests(version, python, sys.argv[1:])
    print()
    for version, outcome in outcomes.items():
        print(f"Python {version:6} {outcome}")
    ran = [outcome for outcome in outcomes.values() if not outcome.startswith("skipped")]
    return 0 if ran and set(ran) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main())
