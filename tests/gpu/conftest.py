"""What tests on a GPU share: the device, or a skip with the reason why it is not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer import Core
from gpu.device import DEVICE
from presence import skip_if_missing

_BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        skip_if_missing(made, DEVICE)
        yield made
