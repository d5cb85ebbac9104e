"""MULTI shows the behaviour that every device must show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.testing import ConformanceCase, conformance_cases

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_multi_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    case.run(core, "MULTI:REFERENCE.0,REFERENCE.1")
