"""What tests on a GPU share: the device, or a skip with the reason why it is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioinfer import Core
from gpu.device import DEVICE
from gpu.needs import NEEDS, libraries_needed
from presence import IS_REQUIRED, skip_if_missing


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        skip_if_missing(made, DEVICE)
        useless = libraries_needed() - set(made.get_metric(DEVICE, "CUDA_LIBRARIES"))
        if IS_REQUIRED and useless:
            pytest.fail(f"{DEVICE} does without {', '.join(sorted(useless))}; {NEEDS} can allow it")
        yield made
