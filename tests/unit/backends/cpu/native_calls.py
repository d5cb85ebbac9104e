"""Native kernels called alone, on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aioinfer.backends.cpu.native.step_runner import KIND_END, step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine


def run_native(
    kernel: str, arrays: Sequence[np.ndarray], parameters: Sequence[int], threads: int = 1
) -> None:
    """Call one native kernel as a step table does."""
    steps = step_runner(open_engine())
    payload = [len(arrays), *(word for array in arrays for word in (0, array.ctypes.data))]
    words = [*payload, *parameters]
    table = np.array([0, 0, 0, steps.kinds[kernel], 2 + len(words), *words, KIND_END, 2], np.int64)
    assert steps.run(table, (), threads) is None
