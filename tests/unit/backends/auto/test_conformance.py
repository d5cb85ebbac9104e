"""AUTO, where it moves between devices, shows the behaviour that every device must show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import ConformanceCase, conformance_cases

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        made.set_config("AUTO", {"ENABLE_RUNTIME_FALLBACK": True})
        yield made


# What AUTO exports is the network of the device that serves, and is imported as that.
OF_THE_DEVICE = ("what_is_imported_computes_the_same",)
CASES = [case for case in conformance_cases() if str(case) not in OF_THE_DEVICE]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_auto_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    case.run(core, "AUTO:REFERENCE.0,REFERENCE.1")
