"""Where the parts of the package lie in the repository, read from the build configuration."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def part_folders() -> dict[str, Path]:
    """Name each mapped package and its folder: aioinfer.runtime lies in runtime/."""
    mapping = pyproject()["tool"]["setuptools"]["package-dir"]
    return {name: ROOT / folder for name, folder in mapping.items()}


def installed_files() -> dict[str, Path]:
    """Map each path that the wheel should hold to the file in the tree."""
    files = {}
    for name, folder in part_folders().items():
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not _is_left_out(file):
                below = file.relative_to(folder).as_posix()
                files[f"{name.replace('.', '/')}/{below}"] = file
    return files


def _is_left_out(file: Path) -> bool:
    """Caches, C sources, and what was compiled from them: the wheel compiles its own."""
    return "__pycache__" in file.parts or file.suffix in {".c", ".h", ".so", ".pyd"}


def module_files() -> dict[str, Path]:
    """Map each module's dotted name to its file; a package to its __init__.py."""
    modules = {}
    for path, file in installed_files().items():
        if path.endswith(".py"):
            dotted = path.removesuffix(".py").replace("/", ".")
            modules[dotted.removesuffix(".__init__")] = file
    return modules
