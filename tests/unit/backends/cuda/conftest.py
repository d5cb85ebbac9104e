"""A Core whose device STANDIN is CUDA on the driver that stands in for a GPU's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from opencl_device import missing_reason
from unit.backends.cuda.planning import cuda_core
from unit.backends.cuda.stand_in_driver import StandInDriver


@pytest.fixture(autouse=True)
def own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide what is compiled for GPUs that are none from other tests."""
    monkeypatch.setenv("AIOINFER_CACHE_DIR", str(tmp_path / "caches"))


@pytest.fixture(scope="session")
def stand_in_core() -> Iterator[Core]:
    """Give the Core; skip where there is no OPENCL device to stand in."""
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with cuda_core(StandInDriver(), "STANDIN") as core:
        yield core
