"""HETERO shows the behaviour that every device must show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import ConformanceCase, conformance_cases
from presence import skip_if_missing

pytestmark = pytest.mark.exhaustive

SLOW = {"GFLOPS": 1e-6, "GB_PER_S": 1e-6, "LINK_GB_PER_S": 1e3, "HOP_US": 1e-3}
"""Beside such devices nothing that crosses counts, so that small models are cut, too."""


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_hetero_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    case.run(core, "HETERO:REFERENCE.0,REFERENCE.1")


@pytest.mark.parametrize("policy", ["PIPELINE", "LATENCY"])
@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_what_a_policy_cuts_conforms(
    case: ConformanceCase, policy: str, core: aioinfer.Core
) -> None:
    core.set_config("HETERO", {"PARTITION_POLICY": policy, "DEVICE_SPEEDS": {"REFERENCE": SLOW}})
    try:
        case.run(core, "HETERO:REFERENCE.0,REFERENCE.1")
    finally:
        core.set_config("HETERO", {"PARTITION_POLICY": "PRIORITY", "DEVICE_SPEEDS": {}})


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_a_pipeline_over_parts_of_the_cpu_conforms(
    case: ConformanceCase, core: aioinfer.Core
) -> None:
    skip_if_missing(core, "HETERO:CPU.0,CPU.1")
    core.set_config("HETERO", {"PARTITION_POLICY": "PIPELINE", "DEVICE_SPEEDS": {"CPU": SLOW}})
    try:
        case.run(core, "HETERO:CPU.0,CPU.1")
    finally:
        core.set_config("HETERO", {"PARTITION_POLICY": "PRIORITY", "DEVICE_SPEEDS": {}})
