"""The project runs from a copy that was never installed, beside wheels that were unpacked."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from gpu.gpu_site import ROOT, copy_project, install_wheels


def run(script: str, *path: Path) -> str:
    """Run a script that finds these folders first, and nothing of ours beside the repository."""
    joined = ":".join(map(str, path))
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": joined, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=170,
        check=True,
    )
    return done.stdout


def test_a_copy_is_found_first_and_knows_its_devices(tmp_path: Path) -> None:
    copy_project(ROOT, tmp_path)
    script = """
import aioinfer, aioinfer.runtime
from aioinfer.backends.cuda import plugin
with aioinfer.Core() as core:
    print(aioinfer.__file__, plugin.__file__, *core.plugin_names)
"""
    front, part, *devices = run(script, tmp_path).split()
    assert Path(front).parent == tmp_path / "aioinfer"
    assert tmp_path in Path(part).parents
    assert {"CPU", "CUDA", "HETERO", "REFERENCE"} <= set(devices)


def test_wheels_are_unpacked_without_network(tmp_path: Path) -> None:
    wheels, target, said = tmp_path / "wheels", tmp_path / "target", list[str]()
    wheels.mkdir()
    write_wheel(wheels, "gpu_ladder_probe", "FOUND = 'in the wheel'")
    assert install_wheels(wheels, target, said.append)
    assert "gpu_ladder_probe-1-py3-none-any.whl" in said[0]
    found = run("import gpu_ladder_probe; print(gpu_ladder_probe.FOUND)", target)
    assert found == "in the wheel\n"


def test_a_damaged_wheel_is_said_and_nothing_is_used(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "damaged-1-py3-none-any.whl").write_bytes(b"no archive")
    assert not install_wheels(tmp_path, tmp_path / "target", said.append)
    assert "damaged" in said[0]


def test_a_folder_without_wheels_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    assert not install_wheels(tmp_path / "none", tmp_path / "target", said.append)
    assert "no wheels" in said[0]


def write_wheel(folder: Path, name: str, text: str) -> None:
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
