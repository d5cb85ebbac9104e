"""The measuring programs by name: modules of the folders here that say how they are run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "find_programs", "load_program"]

FOLDER = Path(__file__).parent


def find_programs() -> dict[str, Path]:
    """Return name -> file, by folder and name; those for GPUs have a run.py of their own."""
    return {
        file.stem: file
        for file in sorted(FOLDER.glob("*/*.py"))
        if f"python benchmarks {file.stem}" in file.read_text(encoding="utf-8")
    }


def load_program(name: str) -> Any:
    """Import a program by its name; raises KeyError where there is none."""
    return importlib.import_module(f"{find_programs()[name].parent.name}.{name}")
