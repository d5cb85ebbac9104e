"""A Core whose device STANDIN is CUDA on the driver that stands in for a GPU's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from opencl_device import missing_reason
from unit.backends.cuda.planning import cuda_core
from unit.backends.cuda.stand_in_driver import StandInDriver

_BENCHMARKS = str(Path(__file__).resolve().parents[4] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)


@pytest.fixture(scope="session")
def stand_in_core() -> Iterator[Core]:
    """Give the Core; skip where there is no OPENCL device to stand in."""
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with cuda_core(StandInDriver(), "STANDIN") as core:
        yield core
