"""Lets these tests import what the benchmarks on a GPU share, and load a program by its name."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[4] / "benchmarks"
for folder in (BENCHMARKS, BENCHMARKS / "gpu"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture
def program() -> Callable[[str], ModuleType]:
    """Load a program; some have names that programs of the folder above have, too."""

    def load(name: str) -> ModuleType:
        unique = f"benchmarks_gpu_{name}"
        if unique in sys.modules:
            return sys.modules[unique]
        spec = importlib.util.spec_from_file_location(unique, BENCHMARKS / "gpu" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules[unique] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    return load
