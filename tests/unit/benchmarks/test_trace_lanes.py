"""What a network does is found in a trace, whichever of the device's queues it was lent."""

from __future__ import annotations

import pytest
from gpu.trace_lanes import stage_of


@pytest.mark.parametrize(
    ("lane", "on_host", "stage"),
    [
        ("CUDA.0 compute", False, "compute"),
        ("CUDA.0 download 12", False, "download"),
        ("CUDA.0 compute 2 host", True, "compute"),
        ("CUDA.0 compute 2 host", False, None),
        ("CUDA.0 compute 2", True, None),
        ("CUDA.1 compute", False, None),
        ("CUDA.0 copies", False, None),
    ],
)
def test_a_queue_is_known_by_its_lane(lane: str, on_host: bool, stage: str | None) -> None:
    assert stage_of(lane, "CUDA.0", on_host=on_host) == stage
