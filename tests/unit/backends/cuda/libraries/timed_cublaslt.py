"""A machine that is not there, with cuBLASLt on a device whose clock is the algorithms'."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.cuda.libraries import cublaslt_matmul
from aioinfer.backends.cuda.libraries.cublaslt_library import CublasLt, MatmulPlan
from unit.backends.cuda.libraries.column_memory import matmul_operation, number_at
from unit.backends.cuda.libraries.fake_cublaslt import FakeCublas, FakeCublasLt
from unit.backends.cuda.libraries.timed_cupy import TimedCupy

__all__ = ["Machine", "algorithm_of"]

SECONDS = {11: 0.003, 12: 0.001, 13: 0.002}


class TimedCublasLt(FakeCublasLt):
    """Matmuls take the seconds of their algorithm."""

    def __init__(self, cupy: TimedCupy) -> None:
        super().__init__()
        self.algorithms = [(number, 64) for number in SECONDS]
        self.seconds = dict(SECONDS)
        self._cupy = cupy

    def matmul(self, *given: int) -> None:
        super().matmul(*given)
        self._cupy.run(lambda: self._pass(given[12]))

    def _pass(self, algorithm: int) -> None:
        self._cupy.clock += self.seconds[int(number_at(algorithm, np.uint64))]


class Machine:
    """A machine with a GPU and cuBLASLt; ``plan`` plans as a process that has just started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch, self.folder = monkeypatch, folder
        self.cupy = TimedCupy()
        self.facts: dict[str, Any] = {
            **{"name": b"a GPU", "major": 9, "minor": 0},
            **{"multiProcessorCount": 132, "l2CacheSize": 1024},
        }
        self.cupy.cuda.Device = lambda device_id: contextlib.nullcontext()
        self.cupy.cuda.runtime.getDeviceProperties = lambda device_id: self.facts
        self.library = TimedCublasLt(self.cupy)
        bindings = SimpleNamespace(cublas=FakeCublas, cublasLt=self.library)
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)  # type: ignore[arg-type]
        monkeypatch.setenv("AIOINFER_CACHE_DIR", str(folder))

    def plan(self, operation: LibraryOperation | None = None) -> MatmulPlan:
        self._monkeypatch.setattr(cublaslt_matmul, "_plans", {})
        return cublaslt_matmul.plan(operation or matmul_operation(), 0)

    def opened(self) -> CublasLt:
        """Give the library, for plans that a test makes itself."""
        return CublasLt(self.library, FakeCublas, self.cupy.cuda.Device)

    def taken(self, operation: LibraryOperation | None = None) -> int:
        """Plan, and tell the number of the algorithm that was taken."""
        return algorithm_of(self.plan(operation))

    @property
    def timing_count(self) -> int:
        """How many launches there were, all of them for timing."""
        return len(self.library.launches)

    @property
    def file(self) -> Path:
        (found,) = (path for path in self.folder.rglob("*") if path.is_file())
        return found


def algorithm_of(plan: MatmulPlan) -> int:
    return int(np.frombuffer(plan.blob, np.uint64)[0])
