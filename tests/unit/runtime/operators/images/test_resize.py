"""Resize finds out that a result is too large before it makes anything as long."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from aioinfer.runtime.operators.images.resize import resize


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_what_no_memory_holds_is_refused_at_once(mode: str, dtype: type) -> None:
    x, scales = np.ones((2, 2, 2, 2), dtype), np.full(4, 1e6, np.float32)
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, MemoryError)):
            resize(x, scales=scales, mode=mode)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20
