"""What a GPU can compute in, from the numbers that CUDA's runtime has for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.cuda.cupy_facts import facts_of


class Runtime:
    """As much of CuPy's runtime as a GPU's facts come from."""

    CUDARuntimeError = RuntimeError

    def __init__(self, major: int, minor: int) -> None:
        self._said = {
            "name": b"A GPU",
            "major": major,
            "minor": minor,
            "integrated": 0,
            "totalGlobalMem": 1 << 30,
            "sharedMemPerBlock": 49152,
            "maxThreadsPerBlock": 1024,
        }

    def getDeviceProperties(self, index: int) -> dict[str, Any]:  # noqa: N802
        return self._said

    def driverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def runtimeGetVersion(self) -> int:  # noqa: N802
        return 13000


@pytest.mark.parametrize(
    ("capability", "has_float16"), [((5, 2), False), ((5, 3), True), ((10, 0), True)]
)
def test_what_a_gpu_computes_in_follows_from_its_compute_capability(
    capability: tuple[int, int], has_float16: bool
) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=Runtime(*capability)))
    facts = facts_of(cupy, 0, frozenset())
    assert facts.compute_capability == capability
    assert facts.has_float16 == has_float16
