"""Inputs of a run that say shapes, places or lengths: as on REFERENCE, or refused.

A device that places memory by them must not believe them; nothing is cut, repeated or left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import aioinfer
import opencl_device
from aioinfer.errors import DeviceError, TensorError, UnsupportedOpError
from exhaustive import all_but

X = np.arange(12, dtype=np.float32).reshape(3, 4)
FAR = 1 << 62
INDEXED = {"gather", "elements", "scatter"}
DEVICES = ["CPU", "HETERO:CPU,REFERENCE", "OPENCL"]

Row = tuple[int, ...]

CASES: dict[str, tuple[str, list[Row], list[Row]]] = {
    "reshape": (
        "r = Relu (x) y = Reshape (r, s)",
        [(2, 6), (-1,), (0, 4), (12, 1, 1)],
        [(2, 3000), (50000, 50000), (2, 2), (-1, -1), (-2, 6), (FAR, 4), (5, -1)],
    ),
    "expand": (
        "y = Expand (x, s)",
        [(3, 4), (2, 3, 4), (1, 1)],
        [(3, 5), (7, 4), (-1, 4), (3, FAR), (1 << 40, 4)],
    ),
    "tile": ("y = Tile (x, s)", [(2, 1), (0, 3)], [(-1, 2), (FAR, 4), (2,), (1, 1, 1)]),
    "pad": (
        "p = Pad (x, s) y = Relu (p)",
        [(1, 0, 0, 2), (-1, 0, -1, 0), (-4, 0, 4, 0), (-FAR, 0, FAR, 0)],
        [(-100, 0, 0, 0), (FAR, FAR, FAR, FAR), (1, 1)],
    ),
    "split": (
        "y, b = Split <axis = 0> (x, s)",
        [(1, 2), (0, 3)],
        [(2, 100), (100, 2), (-1, 4), (5, -2), (1 << 40, 5)],
    ),
    "unsqueeze": (
        "q = Unsqueeze (x, s) y = Relu (q)",
        [(0, 3), (-1,)],
        [(0, 0), (0, 100), (-9, 1)],
    ),
    "squeeze": (
        "q = Unsqueeze (x, at) v = Squeeze (q, s) y = Relu (v)",
        [(0,)],
        [(1,), (9,), (0, 0)],
    ),
    "sum": ("y = ReduceSum (x, s)", [(0,), (-1, 0)], [(7,), (0, 0), (-3,)]),
    "gather": ("y = Gather <axis = 0> (x, s)", [(0, 2), (-3,)], [(3,), (-4, 0), (FAR,)]),
    "elements": (
        "i = Reshape (s, two) y = GatherElements <axis = 0> (x, i)",
        [(0, 2), (-3, 1)],
        [(3, 0), (0, -4), (FAR, 0)],
    ),
    "scatter": (
        "i = Reshape (s, two) y = ScatterElements <axis = 0> (x, i, u)",
        [(0, 2), (-3, 1)],
        [(3, 0), (0, -4), (FAR, 0)],
    ),
    "top": ("y, i = TopK (x, s)", [(2,), (0,)], [(-1,), (5,), (FAR,), (1, 2)]),
    "reversed": (
        "y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, s)",
        [(1, 4, 2)],
        [(9, 1, 1), (-1, 1, 1), (1, 1), (FAR, 1, 1)],
    ),
    "slice": ("y = Slice (x, s, ends)", [(1, 1), (-FAR, 0), (FAR, -FAR)], [(0, 0, 0)]),
    "range": (
        "n = Squeeze (s, at) g = Range (zero, n, one) f = Cast <to = 1> (g) y = Relu (f)",
        [(3,), (-5,), (0,)],
        [(FAR,)],
    ),
    "one hot": ("h = OneHot (s, depth, values) y = Relu (h)", [(0, 2, -3, 3, -4, 99)], []),
    "zeros": ("z = ConstantOfShape (s) y = Relu (z)", [(2, 3), (0,), (0, 9)], [(-1,), (FAR, 4)]),
}
CONSTANTS = """int64[1] at = {0}, int64[2] ends = {9, 9}, int64[2] two = {1, 2},
    float[1,2] u = {7, 8}, int64 zero = {0}, int64 one = {1}, int64 depth = {3},
    float[2] values = {0, 1}"""


def model_of(body: str) -> onnx.ModelProto:
    made: onnx.ModelProto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> hostile (float[a,b] x, int64[k] s) => (y) '
        f"<{CONSTANTS}> {{ {body} }}"
    )
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return made


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def answer(request: aioinfer.InferRequest, row: Row) -> Any:
    """Run it, and tell the array; or the error, which has to be one about the inputs or memory."""
    try:
        return request.infer_sync({"x": X, "s": np.array(row, np.int64)}, deadline_s=20)["y"]
    except (TensorError, DeviceError) as error:
        return error


@pytest.mark.parametrize("device", all_but(DEVICES[:1], DEVICES))
@pytest.mark.parametrize("name", CASES)
def test_what_inputs_say_of_shapes_is_computed_as_on_reference_or_refused(
    core: aioinfer.Core, name: str, device: str
) -> None:
    body, good, bad = CASES[name]
    reason = opencl_device.missing_reason() if device == "OPENCL" else core.why_missing("CPU")
    if reason:
        pytest.skip(reason)
    try:
        network = core.load_network(model_of(body), device)
    except UnsupportedOpError as error:
        if device != "OPENCL":
            raise
        pytest.skip(f"it is refused when it is loaded: {error}")
    with network, core.load_network(model_of(body), "REFERENCE") as reference:
        request, right = network.create_infer_request(), reference.create_infer_request()
        # What is wrong comes between what is right: it must leave no plan and no memory behind.
        for row in [*good, *bad, *good]:
            found, wanted = answer(request, row), answer(right, row)
            if row in bad:
                assert isinstance(wanted, Exception), f"REFERENCE computes {row}: {wanted.shape}"
                is_zero = device == "OPENCL" and name in INDEXED  # a device cannot raise
                assert is_zero or isinstance(found, Exception), f"{row} gives {found.shape}"
            else:
                assert not isinstance(wanted, Exception), f"REFERENCE refuses {row}: {wanted}"
                assert not isinstance(found, Exception), f"{row} is refused: {found}"
                np.testing.assert_array_equal(found, wanted, err_msg=str(row), strict=True)
