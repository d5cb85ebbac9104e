"""Native kernels look at the stop word between their rows: what is left when it is set stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import (
    KIND_END,
    STATUS_STOPPED,
    double_bits,
    step_runner,
)
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.programs.run_arrays import as_buffer
from aioinfer.errors import RequestCancelledError
from aioinfer.runtime.graph import DType
from aioinfer.runtime.runs.stage import Stop
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import BoundPlan, plan_of

X = np.linspace(1.01, 9.7, 64 * 40, dtype=np.float32).reshape(64, 40)
LONG = np.linspace(1.01, 9.7, 1 << 16, dtype=np.float32)
IMAGE = X.reshape(1, 4, 16, 40)
REGIONS = np.array([[1, 1, 30, 9], [2, 3, 9, 12]], np.float32)
SIZES, WIDER = np.array([1, 4, 32, 40]), np.array([1, 4, 32, 80])

CASES: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], int]] = {
    "float_elementwise": ("Erf", {"x": LONG}, {}, 512),
    "integer_elementwise": ("BitwiseNot", {"x": np.arange(1 << 16)}, {}, 512),
    "where": ("Where", {"c": np.ones(1 << 16, np.bool_), "x": LONG, "y": LONG}, {}, 8192),
    "copy": ("Transpose", {"x": X.reshape(2, 32, 40)}, {"perm": [1, 0, 2]}, 40),
    "gather": ("Gather", {"x": X, "i": np.arange(63, -1, -1)}, {}, 40),
    "resample": ("Resize", {"x": IMAGE}, {"to": [None, None, SIZES], "mode": "linear"}, 40),
    "sample_grid": ("Resize", {"x": IMAGE}, {"to": [None, None, WIDER], "mode": "nearest"}, 80),
    "reduce": ("ReduceSum", {"x": X}, {"to": [np.array([1])], "keepdims": 0}, 1),
    "softmax": ("Softmax", {"x": X}, {}, 40),
    "rms_norm": ("RMSNormalization", {"x": X}, {"to": [X[0]]}, 40),
    "layer_norm": ("LayerNormalization", {"x": X}, {"to": [X[0], X[1]]}, 40),
    "align_regions": (
        "RoiAlign",
        {"x": IMAGE, "r": REGIONS, "b": np.array([0, 0])},
        {"output_height": 2, "output_width": 3},
        6,
    ),
    "pool_regions": (
        "MaxRoiPool",
        {"x": IMAGE, "r": np.array([[0, 1, 1, 30, 9]], np.float32)},
        {"pooled_shape": [2, 3]},
        6,
    ),
    "turn_pairs": (
        "RotaryEmbedding",
        {
            "x": X.reshape(1, 64, 40),
            "c": X[:16].reshape(1, 64, 10),
            "s": X[16:32].reshape(1, 64, 10),
        },
        {"num_heads": 2},
        40,
    ),
    "sample_points": (
        "GridSample",
        {"x": X.reshape(1, 16, 8, 20), "g": X.reshape(-1)[: 7 * 9 * 2].reshape(1, 7, 9, 2) / 9.7},
        {},
        4 * 7 * 9,
    ),
    "pool": ("MaxPool", {"x": IMAGE}, {"kernel_shape": [2, 2], "dilations": [2, 2]}, 8 * 38),
}
"""The kernel: an operator that runs by it, its inputs, its constants (``to``) and attributes, and
how many elements of the result are written between two looks."""


def model(op: str, inputs: dict[str, np.ndarray], attributes: dict[str, Any]) -> Any:
    constants = {f"to{index}": array for index, array in enumerate(attributes.get("to", ()))}
    names = [*inputs, *("" if array is None else name for name, array in constants.items())]
    given = {name: value for name, value in attributes.items() if name != "to"}
    known = {name: array for name, array in constants.items() if array is not None}
    node = helper.make_node(op, names, ["result"], "node", **given)
    return model_of([node], inputs, ("result",), known, opset=23)


@pytest.mark.parametrize("kernel", CASES)
def test_a_kernel_leaves_what_is_behind_the_rows_that_set_the_word(kernel: str, core: Core) -> None:
    """Its result lies in the stop word's own memory, so the first row that is written sets it."""
    op, inputs, attributes, count = CASES[kernel]
    plan = plan_of(core, model(op, inputs, attributes), inputs)
    assert [getattr(step, "kernel", "") for step in plan.steps] == [kernel]
    bound = BoundPlan(plan)
    (whole,) = bound.run(inputs)
    word = bytearray(whole.nbytes)
    result = np.frombuffer(word, whole.dtype)
    stop = cast(Stop, SimpleNamespace(word=word, error=RequestCancelledError("stopped")))
    program = bound.programs.program(plan, bound.lane)
    with pytest.raises(RequestCancelledError, match="stopped"):
        program.run(tuple(map(as_buffer, (*inputs.values(), result))), stop)
    is_done = result == whole.reshape(-1)
    assert np.count_nonzero(is_done) == count
    assert not result[~is_done].any()


ALONE_OPERANDS: dict[str, list[np.ndarray]] = {
    "packed_matmul": [
        np.ones((1, 64), np.float32),
        np.full(64 * 40 * 32, 0x99, np.uint8),
        np.full(64 * 40, 1 / 3, np.float32),
    ],
    "half_matmul": [np.full((1, 8), 1 / 3, np.float32), np.full((64 * 40, 8), 0x3C00, np.uint16)],
    "unpack_weights": [np.full(40 * 32, 0x99, np.uint8), np.full(40, 1 / 3, np.float32)],
    "order_rows": [np.full((40, 64), 1 / 3, np.float32)],
    "fold_columns": [np.full((64, 40), 1 / 3, np.float32)],
}


ALONE: dict[str, tuple[list[int], int, int]] = {
    "fill": ([4, 1 << 16, 0x3F8CCCCD], 1 << 16, 8192),
    "thin_matmul": (
        [1, 1, 1, 64, 1, 40, 40, 0, 40, 0, 0, 0, 40, 0, 40, 0, double_bits(1 / 3)],
        64 * 40,
        4,
    ),
    "packed_matmul": ([1, 64, 64 * 40, 64, 4, 0, 0, 1], 64 * 40, 16),
    "half_matmul": ([1, 8, 64 * 40, DType.FLOAT16.value, 0, 1], 64 * 40, 16),
    "unpack_weights": ([64, 40, 64, 4, 0, 0, 40, 1], 64 * 40, 64),
    "order_rows": ([40, 64, 4, 1], 64 * 40, 64),
    "fold_columns": ([1, 40, 64, 1, 64, 1, 1, 1, 0, 1, 1, 1, 1, 0], 64 * 40, 40),
    "attention_probabilities": ([0, 1, 2, 32, 40, double_bits(1.0), 0, 0, 0, 0, 0], 64 * 40, 40),
}
"""Kernels that no operator alone runs by: parameters, elements, and those between two looks."""


@pytest.mark.parametrize("kernel", ALONE)
def test_a_kernel_of_many_operators_stops_like_the_others(kernel: str) -> None:
    parameters, count, between = ALONE[kernel]
    word = bytearray(4 * count)
    result = np.frombuffer(word, np.float32)
    scores = np.ones((64, 40), np.float32)
    reads = {"fill": 0, "thin_matmul": 2}.get(kernel, 1)
    operands = [*ALONE_OPERANDS.get(kernel, [scores] * reads), result]
    payload = [len(operands), *(part for item in operands for part in (0, item.ctypes.data))]
    by = step_runner(open_engine())
    words = [by.kind(kernel), 2 + len(payload) + len(parameters), *payload, *parameters]
    table = np.array([0, 0, 0, *words, KIND_END, 2], np.int64)
    assert by.run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(result) == between


def test_a_quantisation_stops_between_its_blocks() -> None:
    word = bytearray(LONG.size)
    stored = np.frombuffer(word, np.uint8)
    operands = [LONG, stored, np.zeros(1, np.float32), np.zeros(1, np.uint8)]
    payload = [len(operands), *(part for item in operands for part in (0, item.ctypes.data))]
    by = step_runner(open_engine())
    words = [by.kind("dynamic_quantize"), 3 + len(payload), *payload, LONG.size]
    table = np.array([0, 0, 0, *words, KIND_END, 2], np.int64)
    assert by.run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(stored) == 8192


def test_looking_up_stops_between_blocks() -> None:
    word = bytearray(3 * 8192)
    found = np.frombuffer(word, np.uint8)
    operands = [np.zeros(found.size, np.uint8), np.ones(256, np.uint8), found]
    payload = [len(operands), *(part for item in operands for part in (0, item.ctypes.data))]
    by = step_runner(open_engine())
    words = [by.kind("look_up"), 3 + len(payload), *payload, found.size]
    table = np.array([0, 0, 0, *words, KIND_END, 2], np.int64)
    assert by.run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(found) == 8192


BYTES = DType.UINT8.value
INT8: dict[str, tuple[list[int], list[np.ndarray], int, int]] = {
    "int8_product": (
        [1, 1, 640, 1, 640, *[1] * 6, 0, 0, 0, 1, 16, 16, BYTES, BYTES, 0, 4, 16, 6, 1, 0, 0],
        [
            np.zeros(256, np.uint8),
            np.array([0, 4, 4, 0, 1, 2, 3], np.int32),
            np.zeros(16, np.int32),
        ],
        640 * 16,
        6 * 16,
    ),
    "int8_depthwise": (
        [1, 1, 640, 1, 640, *[1] * 6, 0, 0, 0, 16, 1, 1, BYTES, BYTES, 0, 0, 16, 1, 1, 0, 0],
        [np.zeros(64, np.uint8)],
        640 * 16,
        6 * 16,
    ),
    "int8_squares": (
        [1, 4, 160, 2, 158, 3, 3, *[1] * 4, 0, 0, 0, 1, 16, 16, BYTES, BYTES, 0, 0, 16, 6, 1, 0, 0],
        [np.zeros(16 * 16 * 16 * 2, np.uint8)],
        2 * 158 * 16,
        6 * 4 * 16,
    ),
    "int8_taps": (
        [1, 64, 1, 64, 1, *[1] * 6, 0, 0, 0, 64, 1, 1, BYTES, BYTES, 0, 0, 64, 1, 1, 0, 0],
        [np.zeros(256, np.uint8), np.zeros(64, np.int32)],
        64 * 64,
        64,
    ),
}
"""Parameters, weights, elements of the result, and those of a block of rows or squares."""


@pytest.mark.parametrize("kernel", INT8)
def test_kernels_for_int8_stop_between_blocks(kernel: str) -> None:
    """All of their results are their shifts, which are 1."""
    parameters, weights, count, between = INT8[kernel]
    word = bytearray(count)
    result = np.frombuffer(word, np.uint8)
    ones = np.ones(64, np.float32)
    source, scratch = np.zeros(640 * 16, np.uint8), np.zeros(1 << 16, np.uint8)
    operands = [source, *weights, ones, ones, scratch, result]
    payload = [len(operands), *(part for item in operands for part in (0, item.ctypes.data))]
    by = step_runner(open_engine())
    words = [by.kind(kernel), 2 + len(payload) + len(parameters), *payload, *parameters]
    table = np.array([0, 0, 0, *words, KIND_END, 2], np.int64)
    assert by.run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(result) == between


def test_an_ensemble_of_trees_stops_between_blocks_of_rows() -> None:
    rows = 1024
    word = bytearray(4 * rows)
    scores = np.frombuffer(word, np.float32)
    leaf = np.array([[np.float32(np.nan).view(np.int32), -(1 << 31), 0, 0]], np.int32)
    tables = [leaf, np.zeros((1, 2), np.int32), np.array([0, 1], np.int32), np.zeros(1, np.int32)]
    said = [np.array([1.1], np.float32), np.zeros(1), np.zeros(0, np.int64)]
    held = [np.zeros(rows), np.zeros(rows, np.uint8)]
    operands = [np.zeros((rows, 1), np.float32), *tables, *said, *held, scores]
    payload = [len(operands), *(part for item in operands for part in (0, item.ctypes.data))]
    parameters = [rows, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0]
    by = step_runner(open_engine())
    words = [by.kind("tree_ensemble"), 2 + len(payload) + len(parameters), *payload, *parameters]
    table = np.array([0, 0, 0, *words, KIND_END, 2], np.int64)
    assert by.run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(scores) == 256
