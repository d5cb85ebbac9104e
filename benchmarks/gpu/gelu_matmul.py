"""BERT-base's first matmul of a layer, with its bias and GELU by erf: as CUDA does it, and fused.

    python benchmarks/gpu/gelu_matmul.py

CUDA has cuBLASLt compute matmul and bias, and a kernel of ours the GELU in place. cuDNN has all
three in one launch, by an engine that it compiles for each shape. Whichever is faster on a device
is what CUDA should do; both are chosen by timing among what their libraries recommend.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import numpy as np
from measuring import Settings, run_benchmark
from onnx import TensorProto, helper, numpy_helper
from raw_cuda import captured, device_us
from reporting import Report

import aioinfer
from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.cuda.libraries.cudnn_device import plan_on
from aioinfer.backends.cuda.libraries.cudnn_graph import (
    GraphDescription,
    StepDescription,
    TensorDescription,
)
from aioinfer.errors import AioInferError
from aioinfer.runtime.devices.device_name import parse_device

ROWS, WIDTH, HIDDEN = (128, 1024, 8192), 768, 3072
"""Tokens of 1, 8 and 64 sequences, and the lengths of one before and behind the matmul."""
WORKSPACE_BYTES = 32 << 20
REPEATS, PROFILED = 20, 40


def measure(report: Report, settings: Settings) -> None:
    for rows in ROWS:
        title = f"{rows} x {WIDTH} by {WIDTH} x {HIDDEN}"
        if not settings.has_time(6.0):
            report.refuse(title, "left out: no time")
            continue
        for way, measure_way in (("two launches", two_launches_us), ("cuDNN, one", cudnn_us)):
            try:
                report.add(f"{title}, {way}", measure_way(rows, settings), "us")
            except (AioInferError, DriverError, RuntimeError) as error:
                report.refuse(f"{title}, {way}", error)


def two_launches_us(rows: int, settings: Settings) -> float:
    """Give the median time of the device for the launches of a network of one matmul."""
    config = {"PERF_COUNT": "YES", "INFERENCE_PRECISION_HINT": "f16"}
    x = np.random.default_rng(0).standard_normal((rows, WIDTH)).astype(np.float16)
    with (
        aioinfer.Core() as core,
        core.load_network(matmul(rows), settings.device, config) as network,
    ):
        request, taken_us = network.create_infer_request(), []
        for _ in range(PROFILED):
            request.infer_sync({"x": x})
            taken_us.append(sum(launch.real_time_s for launch in request.profiling()) * 1e6)
        print([launch.implementation for launch in request.profiling()], flush=True)
    return median(taken_us[PROFILED // 2 :])


def cudnn_us(rows: int, settings: Settings) -> float:
    """Give the device's time for cuDNN's plan, in a CUDA graph of many."""
    import cupy

    index = int(parse_device(settings.device).id or 0)
    with cupy.cuda.Device(index):
        description = described(rows)
        planned = plan_on(index, description)
        stream, chance = cupy.cuda.Stream(non_blocking=True), np.random.default_rng(0)
        operands = [
            cupy.asarray(chance.standard_normal(tensor.extent).astype(np.float16))
            for tensor in description.tensors
        ]
        workspace = cupy.empty(max(1, planned.workspace_bytes), cupy.uint8)
        addresses = [item.data.ptr for item in (*operands, workspace)]
        cupy.cuda.get_current_stream().synchronize()

        def enqueue() -> None:
            for _ in range(REPEATS):
                planned.enqueue(addresses, stream.ptr)

        graph = captured(stream, enqueue)
        return device_us(stream, partial(graph.launch, stream), 1, settings.rounds) / REPEATS


def described(rows: int) -> GraphDescription:
    """Describe matmul, bias and GELU as a graph of cuDNN. Pure."""
    lengths = {"a": (rows, WIDTH), "b": (WIDTH, HIDDEN), "bias": (1, HIDDEN), "y": (rows, HIDDEN)}
    tensors = [
        TensorDescription(uid, name, (1, m, n), (m * n, n, 1))
        for uid, (name, (m, n)) in enumerate(lengths.items(), 1)
    ]
    steps = (
        StepDescription("matmul", "sum", (("A", "a"), ("B", "b"))),
        StepDescription("bias", "sum", (("input", "sum"), ("bias", "bias"))),
        StepDescription("gelu", "made", (("input", "sum"),)),
    )
    summary = f"a matmul of {rows} x {WIDTH} by {WIDTH} x {HIDDEN}, a bias and GELU"
    name = f"gelu_matmul_{rows}"
    return GraphDescription(
        name, summary, "float16", tuple(tensors), (), steps, "y", (), WORKSPACE_BYTES
    )


def matmul(rows: int) -> Any:
    """Make a model of the same in float16."""
    chance = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sum"], "matmul"),
        helper.make_node("Add", ["sum", "c"], ["biased"], "bias"),
        helper.make_node("Gelu", ["biased"], ["y"], "gelu"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, [rows, length])
        for name, length in (("x", WIDTH), ("y", HIDDEN))
    ]
    drawn = {"w": chance.standard_normal((WIDTH, HIDDEN)) / 28, "c": chance.standard_normal(HIDDEN)}
    constants = [
        numpy_helper.from_array(array.astype(np.float16), name) for name, array in drawn.items()
    ]
    graph = helper.make_graph(nodes, "gelu_matmul", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


if __name__ == "__main__":
    run_benchmark("gelu_matmul", measure, __doc__)
