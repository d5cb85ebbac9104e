"""CUDA on the driver that stands in for a GPU's, and small networks, for rungs without a GPU."""

from __future__ import annotations

from dataclasses import replace

import models
import pytest

from aioinfer.backends.cuda import cupy_driver
from unit.backends.cuda.stand_in_driver import StandInDriver
from unit.benchmarks.small_networks import IMAGES, SMALL

__all__ = ["ALL", "stand_in"]

ALL = frozenset({"cudnn", "cublas", "cublaslt"})


def stand_in(patch: pytest.MonkeyPatch, libraries: frozenset[str] = ALL) -> None:
    """Put one of these in the place of each driver of CUDA."""
    patch.setattr(cupy_driver, "CupyDriver", lambda: StandInDriver(libraries))
    small = replace(models.MODELS["resnet50"], build=SMALL["resnet50"], inputs=IMAGES)
    patch.setitem(models.MODELS, "resnet50", small)
