"""The error that a failed kernel becomes."""

import numpy as np

from aioinfer.errors import DeviceError, TensorError
from aioinfer.runtime.operators.kernel_failure import explain, value_text


def test_values_are_written_by_type_and_shape() -> None:
    assert value_text(np.zeros((2, 3), np.float32)) == "float32[2,3]"
    assert value_text(None) == "none"
    assert value_text([]) == "seq of 0"
    assert value_text([np.zeros(4, np.int64)] * 2) == "seq of 2 int64[4]"


def test_the_innermost_cause_is_told() -> None:
    inner = ValueError("shapes differ")
    outer = TypeError("issues with types")
    outer.__cause__ = inner
    error = explain(outer, "n", "Add", [None])
    assert isinstance(error, TensorError)
    assert "ValueError: shapes differ" in str(error)


def test_running_out_of_memory_is_no_complaint_about_tensors() -> None:
    assert isinstance(explain(MemoryError(), "n", "Add", []), DeviceError)
