"""Where a device shows another behaviour than the shared suite asks for, and why."""

from __future__ import annotations

import pytest

from aioinfer.testing import ConformanceCase

DEVIATIONS = {
    ("ONNXRUNTIME", "special_rows_agrees_with_reference"): (
        "onnxruntime's maxima do not see NaN, and start from the lowest finite number"
    ),
}
"""By a part of the device's name and a case: why what it computes with does otherwise."""


def skip_if_deviating(device: str, case: ConformanceCase) -> None:
    """Skip a case, with its reason, that this device is known to answer in another way."""
    for (part, name), reason in DEVIATIONS.items():
        if part in device and str(case) == name:
            pytest.skip(reason)
