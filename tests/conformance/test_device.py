"""The conformance suite on one device: ``make conformance DEVICE=...`` says which.

AIOINFER_CONFORMANCE_DEVICE names the device; REFERENCE is the default. A device that is not there
is a skip with its reason, because most machines lack most devices. Where it should be present, set
AIOINFER_REQUIRE_DEVICE=1, and it is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import ConformanceCase, conformance_cases
from deviations import skip_if_deviating
from presence import skip_if_missing
from quick_builds import build_quickly

DEVICE = os.environ.get("AIOINFER_CONFORMANCE_DEVICE", "REFERENCE")


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        if "OPENCL" in DEVICE and DEVICE != "OPENCL":  # whose own run builds as users do
            build_quickly(made)
        skip_if_missing(made, DEVICE)
        yield made


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_device_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    skip_if_deviating(DEVICE, case)
    case.run(core, DEVICE)
