"""ONNXRUNTIME shows the behaviour that every device must show."""

import pytest

import aioinfer
from aioinfer.testing import ConformanceCase, conformance_cases
from deviations import skip_if_deviating


@pytest.mark.parametrize("case", conformance_cases(), ids=str)
def test_the_device_conforms(case: ConformanceCase, core: aioinfer.Core) -> None:
    skip_if_deviating("ONNXRUNTIME", case)
    case.run(core, "ONNXRUNTIME")
