"""What tests on a GPU share: the device, or a skip with the reason why it is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioinfer import Core
from gpu.device import DEVICE
from presence import skip_if_missing


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        skip_if_missing(made, DEVICE)
        yield made
