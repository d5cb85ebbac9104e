"""What an NVIDIA H200 should reach, computed before anything was measured, and what is wanted.

Ceilings: 790 TFLOP/s of float16 products and 4.3 TB/s, as measured on an H200 with other programs.
The roofline of a network is the sum over its kernels of what operations or bytes take, whichever is
more. The tile model takes for each kernel the best of five tile shapes at 75 % of the ceiling, at
least 2.5 us, and 1.2 us to the next kernel of a CUDA graph. Other devices differ by their ceilings.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ASYNC_P50_MS",
    "ASYNC_REQUESTS_PER_S",
    "BATCHES",
    "BERT_BASE",
    "COPY_BYTES_PER_S",
    "GRAPH_LAUNCH_US",
    "LAUNCH_GAP_US",
    "LAUNCH_US",
    "LINK_BYTES_PER_S",
    "LINK_FIXED_US",
    "PRODUCT_FLOP_PER_S",
    "RESNET50",
    "WAKE_US",
    "Prediction",
    "graph_launch_us",
    "transfer_us",
]

PRODUCT_FLOP_PER_S = 790e12
COPY_BYTES_PER_S = 4.3e12
"""Read and written, on the device."""
LINK_BYTES_PER_S = 50e9
"""PCIe 5 with 16 lanes, from pinned memory."""
LINK_FIXED_US = 3.5
"""Of each copy, between 2 and 5."""
LAUNCH_US = 8.0
"""Of the host, for one kernel by CuPy, between 6 and 10."""
GRAPH_LAUNCH_US = 5.0
"""Of the host, for a network's CUDA graph by CuPy."""
LAUNCH_GAP_US = 1.2
"""Between kernels of a CUDA graph that depend on each other."""
WAKE_US = {"blocking event": 40.0, "spinning event": 5.0, "written word": 1.0}
"""From the end of a kernel until a thread that waits for it goes on."""
BATCHES = (1, 8, 64, 256)


@dataclass(frozen=True)
class Prediction:
    """One batch of a network in float16, on the device alone; ``wanted_per_s``: the goal, if any.

    ``roofline_us`` is out of reach, ``graph_us`` is what a CUDA graph of one kernel a node takes.
    """

    batch: int
    roofline_us: float
    graph_us: float
    wanted_per_s: float | None = None

    @property
    def per_s(self) -> float:
        """Images or sequences a second, of one CUDA graph after the other."""
        return self.batch / self.graph_us * 1e6


RESNET50 = {
    one.batch: one
    for one in (
        Prediction(1, 25.0, 208.0),
        Prediction(8, 137.0, 294.0),
        Prediction(64, 1080.0, 1400.0),
        Prediction(256, 4320.0, 5170.0, wanted_per_s=40_000.0),
    )
}
"""224 x 224, batch normalisation folded: 8.18 GFLOP and 57 MB an image, 51 MB of weights."""
BERT_BASE = {
    one.batch: one
    for one in (
        Prediction(1, 50.0, 331.0),
        Prediction(8, 226.0, 594.0),
        Prediction(64, 1810.0, 2900.0, wanted_per_s=18_000.0),
        Prediction(256, 7200.0, 10_900.0),
    )
}
"""128 tokens: 22.3 GFLOP and 45 MB a sequence, 170 MB of weights."""
ASYNC_REQUESTS_PER_S = 4000.0
"""Wanted: single uint8 images for ResNet-50, awaited from one process, unbatched."""
ASYNC_P50_MS = 0.5
"""Wanted: the same, one request after the other."""


def transfer_us(size_bytes: int) -> float:
    """Predict a copy between pinned memory and the device. Pure."""
    return LINK_FIXED_US + size_bytes / LINK_BYTES_PER_S * 1e6


def graph_launch_us(node_count: int) -> float:
    """Predict what the host pays for a straight CUDA graph: 2.5 us and 1 ns a node. Pure."""
    return 2.5 + node_count / 1000
