"""What OPENCL's queues do at the same time, as a page: uploads, launches, downloads of requests.

    python benchmarks opencl_overlap trace.html [device]

The model does little with much data (48 MB each way), so that all three queues have something to
do; twelve requests share the device's three slots. The page is the trace of what came once every
request had its memory. What is printed comes from the device's own clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import aioinfer

STAGES = ("upload", "compute", "download")
SHAPE = (16, 3, 512, 512)
REQUEST_COUNT = 3
CONFIG = {"PERFORMANCE_HINT": "THROUGHPUT"}
ROUND_COUNT = 4


def negating() -> Any:
    """Make a model that does little with much data."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negate", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shares(spans: Sequence[Any]) -> dict[tuple[str, ...], float]:
    """Say in which share of the time which stages went on, each of another request."""
    moments = sorted({time for span in spans for time in (span.started_ns, span.ended_ns)})
    found: Counter[tuple[str, ...]] = Counter()
    for begin, end in pairwise(moments):
        busy = [s for s in spans if s.started_ns <= begin and s.ended_ns >= end]
        assert len({span.run_id for span in busy}) == len(busy)
        found[tuple(sorted((s.stage for s in busy), key=STAGES.index))] += end - begin
    return {stages: found[stages] / (moments[-1] - moments[0]) for stages in sorted(found)}


def run_all(requests: Sequence[Any], inputs: Any, round_count: int) -> None:
    """Run all requests side by side, each again as soon as it is done."""

    async def run(request: Any) -> None:
        for _ in range(round_count):
            await request.infer(inputs)

    async def run_together() -> None:
        await asyncio.gather(*map(run, requests))

    asyncio.run(run_together())


def main() -> None:
    page, device = [*sys.argv[1:], "OPENCL"][:2]
    with aioinfer.Core() as core, core.load_network(negating(), device, CONFIG) as network:
        requests = [network.create_infer_request() for _ in range(REQUEST_COUNT)]
        inputs = np.random.default_rng(0).random(SHAPE, np.float32)
        run_all(requests, inputs, ROUND_COUNT)
        warm_ns = max(span.ended_ns for span in network.trace())
        run_all(requests, inputs, ROUND_COUNT)
        trace = network.trace().since(warm_ns)
        trace.save(page)
        lanes = [f"{network.device} {stage}" for stage in STAGES]
        spans = [span for span in trace if span.lane in lanes]
        for lane in lanes:
            took_ms = [(s.ended_ns - s.started_ns) / 1e6 for s in spans if s.lane == lane]
            print(f"{lane}: {len(took_ms)} runs, median {np.median(took_ms):.1f} ms")
        for stages, share in shares(spans).items():
            print(f"{' + '.join(stages) or 'nothing'}: {share:.0%} of the time")
