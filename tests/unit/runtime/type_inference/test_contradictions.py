"""Nodes that contradict themselves, by family, and beside each one a possible neighbour."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from aioinfer.runtime.type_inference import ContradictionError, ShapeContent, find_rule
from unit.runtime.type_inference.typed_nodes import Given, make_node


class Case(NamedTuple):
    """An operator that is refused with the one and typed with the other inputs and attributes."""

    op_type: str
    bad: list[Given]
    bad_attributes: dict[str, Any]
    good: list[Given]
    good_attributes: dict[str, Any]
    reason: str
    outputs: int = 1

    def __str__(self) -> str:
        return f"{self.op_type}-{self.reason}"


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def floats(*items: float) -> np.ndarray:
    return np.array(items, np.float32)


def by_attributes(
    op_type: str, inputs: list[Given], bad: dict[str, Any], good: dict[str, Any], reason: str
) -> Case:
    return Case(op_type, inputs, bad, inputs, good, reason)


def by_inputs(
    op_type: str, bad: list[Given], good: list[Given], reason: str, **attributes: Any
) -> Case:
    return Case(op_type, bad, attributes, good, attributes, reason)


X = "float32[3,4]"
IMAGE = "float32[1,4,6,6]"
AXES = [
    by_attributes("Softmax", [X], {"axis": 2}, {"axis": 1}, "axis 2"),
    by_attributes("LogSoftmax", [X], {"axis": -3}, {"axis": -2}, "axis -3"),
    by_attributes("ArgMax", [X], {"axis": 9}, {"axis": 1}, "axis 9"),
    by_attributes("Concat", [X, X], {"axis": 7}, {"axis": 1}, "axis 7"),
    by_attributes("Flatten", [X], {"axis": 3}, {"axis": 2}, "axis is 3"),
    by_attributes("Gather", [X, "int64[3]"], {"axis": 9}, {"axis": 1}, "axis 9"),
    by_attributes("LpNormalization", [X], {"axis": 2}, {"axis": 1}, "axis 2"),
    by_attributes("MeanVarianceNormalization", [X], {"axes": [0, 0]}, {"axes": [0]}, "twice"),
    by_inputs("ReduceSum", [X, ints(7)], [X, ints(1)], "axis 7"),
    by_inputs("ReduceMax", [X, ints(0, -2)], [X, ints(0, 1)], "twice"),
    by_inputs("Squeeze", ["float32[1,4]", ints(2)], ["float32[1,4]", ints(0)], "axis 2"),
    by_inputs("Squeeze", ["float32[1,4]", ints(0, -2)], ["float32[1,4]", ints(-2)], "twice"),
    by_inputs("Squeeze", ["float32[1,4]", "int64[2,1]"], ["float32[1,4]", ints(0)], "list of axes"),
    by_inputs("Unsqueeze", [X, "int64[1,1]"], [X, ints(0)], "list of axes"),
    by_inputs("Unsqueeze", [X, "int64[1,1]"], [X, np.array(0)], "list of axes"),
    by_inputs("Squeeze", [X, ints(0)], ["float32[1,4]", ints(0)], "length 1"),
    by_inputs("Unsqueeze", [X, ints(0, 0)], [X, ints(0, 3)], "twice"),
    by_inputs("CumSum", [X, np.array(2)], [X, np.array(1)], "axis 2"),
    by_inputs("CumSum", [X, ints(0, 1)], [X, ints(0)], "one number"),
    Case("TopK", [X, ints(2)], {"axis": 9}, [X, ints(2)], {"axis": 1}, "axis 9", 2),
    Case("TopK", [X, ints(5)], {}, [X, ints(4)], {}, "keep 5", 2),
    Case("TopK", [X, ints(-1)], {}, [X, ints(0)], {}, "keep -1", 2),
    by_attributes("Transpose", [X], {"perm": [0, 0]}, {"perm": [1, 0]}, "no order"),
    by_attributes("Transpose", [X], {"perm": [-1, 0]}, {"perm": [1, 0]}, "below 0"),
    by_attributes("Transpose", [X], {"perm": [0]}, {"perm": [0, 1]}, "2 integers"),
]
ELEMENTWISE = [
    by_inputs(op, [X, "float32[3,5]"], [X, "float32[3,1]"], "do not broadcast")
    for op in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Mean", "Sum", "Pow", "Equal", "Less")
]
ELEMENTWISE += [
    by_inputs("Add", [X, "int64[3,4]"], [X, X], "one element type"),
    by_inputs("And", [X, X], ["bool[3]", "bool[3]"], "have to be bool"),
    by_inputs("PRelu", [X, "float32[5]"], [X, "float32[4]"], "spread"),
    by_inputs("Where", ["bool[3,5]", X, X], ["bool[3,1]", X, X], "do not broadcast"),
    by_inputs("Where", [X, X, X], ["bool[3,4]", X, X], "bool"),
    by_inputs("Clip", [X, "float32[5]"], [X, "float32[1]"], "one number"),
    by_inputs("Clip", [X, None, "float32[0]"], [X, None, "float32[]"], "one number"),
    by_attributes("Cast", [X], {"to": 99}, {"to": 7}, "no element type"),
    by_inputs("Trilu", ["float32[4]"], [X], "at least 2"),
]
MOVEMENT = [
    by_inputs("Reshape", [X, ints(2, 2)], [X, ints(2, 6)], "number of elements"),
    by_inputs("Reshape", [X, ints(50000, 50000)], [X, ints(12, 1)], "number of elements"),
    by_inputs("Reshape", [X, ints(-1, -1)], [X, ints(-1, 1)], "only one"),
    by_inputs("Reshape", [X, ints(-1, 5)], [X, ints(-1, 6)], "do not divide"),
    by_inputs("Reshape", [X, ints(-2, 6)], [X, ints(2, 6)], "no length"),
    by_inputs("Reshape", [X, floats(12)], [X, ints(12)], "int64"),
    by_inputs("Expand", [X, ints(3, 5)], [X, ints(3, 1)], "do not broadcast"),
    by_inputs("Expand", [X, ints(7, 4)], [X, ints(7, 1, 4)], "do not broadcast"),
    by_inputs("Expand", [X, ints(-1, 4)], [X, ints(1, 4)], "no shape"),
    by_inputs("Tile", [X, ints(-1, 2)], [X, ints(0, 2)], "from 0"),
    by_inputs("Tile", [X, ints(2)], [X, ints(2, 1)], "1 repeats"),
    by_inputs("Pad", [X, ints(-3, 0, -1, 0)], [X, ints(-2, 0, -1, 0)], "take more"),
    by_inputs("Pad", [X, ints(-4, 0, 0, 0)], [X, ints(-4, 0, 1, 0)], "take more"),
    by_inputs("Pad", [X, ints(-4, 0, 4, 0)], [X, ints(-2, 0, 4, 0)], "take more", mode="edge"),
    by_inputs("Pad", [X, ints(-3, 0, 4, 0)], [X, ints(-3, 0, 0, 0)], "leave nothing", mode="wrap"),
    by_inputs(
        "Pad", [X, ints(*[1] * 4), "float32[2,5]"], [X, ints(*[1] * 4), "float32[1]"], "not one"
    ),
    by_inputs("Pad", [X, ints(1, 1)], [X, ints(1, 1, 1, 1)], "2 pads"),
    by_inputs("Pad", [X, ints(*[0] * 300)], [X, ints(*[0] * 4)], "300 pads"),
    by_inputs("Tile", [X, ints(*[1] * 300)], [X, ints(1, 1)], "300 repeats"),
    by_inputs("Pad", [X, ints(1, 1), None, ints(2)], [X, ints(1, 1), None, ints(1)], "axis 2"),
    by_inputs("Slice", [X, ints(0), ints(9), ints(2)], [X, ints(0), ints(9), ints(1)], "axis 2"),
    by_inputs("Slice", [X, ints(*[0] * 65), ints(*[9] * 65)], [X, ints(0), ints(9)], "65 starts"),
    by_inputs("Slice", [X, "int64[3]", "int64[3]"], [X, ints(0, 0), ints(9, 9)], "3 starts"),
    by_inputs("Slice", [X, ints(0), ints(9, 9)], [X, ints(0), ints(9)], "not as many"),
    by_inputs(
        "Slice",
        [X, ints(0), ints(9), ints(0), ints(0)],
        [X, ints(0), ints(9), ints(0), ints(2)],
        "step is 0",
    ),
    by_inputs("Concat", [X, "float32[3,500]"], [X, "float32[9,4]"], "the same", axis=0),
    by_inputs("Concat", [X, "float32[3]"], [X, X], "axes", axis=0),
    by_inputs("Concat", [X, "int32[3,4]"], [X, X], "element type", axis=0),
    Case("Split", [X, ints(2, 300)], {}, [X, ints(2, 1)], {}, "cannot be split", 2),
    Case("Split", [X, ints(-1, 4)], {}, [X, ints(0, 3)], {}, "cannot be split", 2),
    Case("Split", [X, ints(1, 1, 1)], {}, [X, ints(1, 2)], {}, "3 lengths", 2),
    Case("Split", [X, ints(3, 1)], {"axis": 9}, [X, ints(3, 1)], {"axis": 1}, "9", 2),
    Case("Split", [X], {"num_outputs": 3}, [X], {"num_outputs": 2}, "num_outputs is 3", 2),
    by_attributes("DepthToSpace", [IMAGE], {"blocksize": 3}, {"blocksize": 2}, "multiple"),
    by_attributes("DepthToSpace", [IMAGE], {"blocksize": 0}, {"blocksize": 1}, "blocksize is 0"),
    by_attributes(
        "DepthToSpace",
        [IMAGE],
        {"blocksize": 2, "mode": "wrap"},
        {"blocksize": 2, "mode": "CRD"},
        "its mode",
    ),
    by_attributes("SpaceToDepth", [IMAGE], {"blocksize": 4}, {"blocksize": 3}, "no blocks"),
    by_inputs("Resize", [X, None, floats(1, np.nan)], [X, None, floats(1, 2)], "finite"),
    by_inputs("Resize", [X, None, floats(1, -2)], [X, None, floats(1, 0.5)], "above zero"),
    by_inputs("Resize", [X, None, floats(1, 0)], [X, None, floats(1, 1)], "above zero"),
    by_inputs("Resize", [X, None, floats(1, 1e20)], [X, None, floats(1, 10)], "times as long"),
    by_inputs("Resize", [X, None, floats(2)], [X, None, floats(2, 2)], "scales"),
    by_inputs("Resize", [X, None, None, ints(-1, 4)], [X, None, None, ints(1, 4)], "no lengths"),
    by_inputs("Resize", [X, None, None, ints(0, 4)], [X, None, None, ints(6, 8)], "resized to 0"),
    by_inputs(
        "Resize",
        [X, None, floats(2, 2), ints(6, 8)],
        [X, None, "float32[1,0]", ints(6, 8)],
        "both sizes and scales",
    ),
    by_inputs(
        "Resize",
        [X, floats(0, 0, np.nan, 1), None, ints(6, 8)],
        [X, floats(0, 0, 1, 1), None, ints(6, 8)],
        "finite",
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
    by_inputs("CenterCropPad", [X, ints(2)], [X, ints(2, 2)], "1 lengths"),
    by_inputs("Range", [ints(0), ints(9), ints(0)], [ints(0), ints(9), ints(2)], "step is 0"),
    by_inputs("Range", [ints(0), ints(9, 9), ints(1)], [ints(0), ints(9), ints(1)], "one number"),
    by_inputs("ConstantOfShape", [ints(-1, 4)], [ints(0, 4)], "below zero"),
    by_inputs("EyeLike", ["float32[3]"], [X], "2 are wanted"),
    by_attributes("RandomNormal", [], {"shape": [-1]}, {"shape": [1]}, "no shape"),
]
INDICES = [
    by_inputs("Gather", [X, "float16[3]"], [X, "int32[3]"], "indices are float16"),
    by_inputs("GatherElements", [X, "int64[300,2]"], [X, "int64[3,2]"], "reach beyond", axis=1),
    by_inputs("GatherElements", [X, "int64[3]"], [X, "int64[3,4]"], "2 are wanted"),
    by_inputs("Gather", ["float32[0,4]", "int64[2]"], ["float32[0,4]", "int64[0]"], "nothing to"),
    by_inputs("Gather", ["float32[0,4]", "int64"], ["float32[1,4]", "int64"], "nothing to pick"),
    by_inputs(
        "GatherElements", ["float32[0,4]", "int64[1,4]"], ["float32[0,4]", "int64[0,4]"], "nothing"
    ),
    by_inputs("GatherND", ["float32[3,0]", "int64[2,2]"], ["float32[3,1]", "int64[2,2]"], "axis 1"),
    by_inputs("GatherND", [X, "int64[300,1]"], [X, "int64[3,1]"], "the same", batch_dims=1),
    by_inputs("GatherND", [X, "int64[5,3]"], [X, "int64[5,2]"], "3 numbers"),
    by_inputs(
        "ScatterElements",
        [X, "int64[3,2]", "float32[3,1]"],
        [X, "int64[3,2]", "float32[3,2]"],
        "updates",
        axis=1,
    ),
    by_inputs(
        "ScatterND",
        [X, "int64[2,1]", "float32[2,5]"],
        [X, "int64[2,1]", "float32[2,4]"],
        "updates",
    ),
    by_inputs(
        "OneHot",
        ["int64[2]", np.array(-3), "float32[2]"],
        ["int64[2]", np.array(3), "float32[2]"],
        "below zero",
    ),
    by_inputs(
        "OneHot",
        ["int64[2]", np.array(3), "float32[1]"],
        ["int64[2]", np.array(3), "float32[2]"],
        "off and on",
    ),
    by_inputs("ReverseSequence", [X, "int64[2]"], [X, "int64[4]"], "list of lengths"),
    by_inputs("ReverseSequence", [X, ints(1, 2, 3, 9)], [X, ints(1, 2, 3, 0)], "length of 9"),
    by_attributes(
        "ReverseSequence",
        ["float32[4,4]", "int64[4]"],
        {"batch_axis": 1, "time_axis": 1},
        {"batch_axis": 0, "time_axis": 1},
        "have to be 0 and 1",
    ),
]
PRODUCTS = [
    by_inputs(
        "MatMul", ["float32[4,500]", "float32[6,3]"], ["float32[4,6]", "float32[6,3]"], "rows"
    ),
    by_inputs(
        "MatMul",
        ["float32[2,4,5]", "float32[3,5,2]"],
        ["float32[2,4,5]", "float32[1,5,2]"],
        "2 and 3",
    ),
    by_inputs("MatMul", ["float32[]", "float32[1]"], ["float32[1]", "float32[1]"], "multiply"),
    by_inputs("Gemm", ["float32[4,500]", "float32[6,3]"], ["float32[4,6]", "float32[6,3]"], "500"),
    by_inputs(
        "Gemm",
        [X, "float32[4,5]", "float32[7]"],
        [X, "float32[4,5]", "float32[3,1]"],
        "what is added",
    ),
    by_inputs("Einsum", [X, "float32[5,2]"], [X, "float32[4,2]"], "the same", equation="ij,jk->ik"),
    by_inputs("Einsum", ["float32[3]"], [X], "name the axes", equation="ij->ji"),
    by_inputs(
        "MatMulInteger",
        ["uint8[4,6]", "uint8[6,3]", "uint8[]", "uint8[5]"],
        ["uint8[4,6]", "uint8[6,3]", "uint8[]", "uint8[3]"],
        "columns",
    ),
]
WEIGHTS = "float32[8,4,3,3]"
WINDOWS = [
    by_inputs("Conv", ["float32[1,500,6,6]", WEIGHTS], [IMAGE, WEIGHTS], "500 channels"),
    by_inputs("Conv", [IMAGE, WEIGHTS, "float32[2]"], [IMAGE, WEIGHTS, "float32[8]"], "bias"),
    by_inputs("Conv", [IMAGE, "float32[8,4,9,9]"], [IMAGE, "float32[8,4,6,6]"], "does not fit"),
    by_attributes("Conv", [IMAGE, WEIGHTS], {"group": 0}, {"group": 1}, "0 groups"),
    by_attributes("Conv", [IMAGE, WEIGHTS], {"strides": [0, 1]}, {"strides": [2, 1]}, "below 1"),
    by_attributes(
        "Conv", [IMAGE, WEIGHTS], {"dilations": [1]}, {"dilations": [1, 2]}, "2 integers"
    ),
    by_attributes(
        "Conv", [IMAGE, WEIGHTS], {"pads": [-1, 0, 0, 0]}, {"pads": [1, 0, 0, 0]}, "below"
    ),
    by_attributes(
        "Conv", [IMAGE, WEIGHTS], {"kernel_shape": [9, 9]}, {"kernel_shape": [3, 3]}, "kernel_shape"
    ),
    by_inputs("ConvTranspose", [IMAGE, "float32[500,3,3,3]"], [IMAGE, "float32[4,3,3,3]"], "rows"),
    by_attributes(
        "MaxPool", [IMAGE], {"kernel_shape": [9, 9]}, {"kernel_shape": [6, 6]}, "does not fit"
    ),
    by_attributes(
        "MaxPool", [IMAGE], {"kernel_shape": [0, 2]}, {"kernel_shape": [1, 2]}, "below 1"
    ),
    by_attributes(
        "AveragePool", [IMAGE], {"kernel_shape": [2]}, {"kernel_shape": [2, 2]}, "2 integers"
    ),
    by_attributes(
        "MaxPool",
        [IMAGE],
        {"kernel_shape": [2, 2], "dilations": [0, 1]},
        {"kernel_shape": [2, 2], "dilations": [2, 1]},
        "below 1",
    ),
    by_inputs("GlobalAveragePool", ["float32[4]"], [IMAGE], "at least 2"),
    by_inputs(
        "MaxUnpool",
        [IMAGE, "int64[1,4,6,5]"],
        [IMAGE, "int64[1,4,6,6]"],
        "places",
        kernel_shape=[2, 2],
    ),
    by_inputs("GridSample", [IMAGE, "float32[1,2,2,3]"], [IMAGE, "float32[1,2,2,2]"], "grid"),
    by_inputs(
        "RoiAlign",
        [IMAGE, "float32[3,5]", "int64[3]"],
        [IMAGE, "float32[3,4]", "int64[3]"],
        "regions",
    ),
]
C4, C3 = "float32[4]", "float32[3]"
NORMALIZATIONS = [
    by_inputs("BatchNormalization", [IMAGE, C3, C3, C3, C3], [IMAGE, C4, C4, C4, C4], "the scale"),
    by_inputs("BatchNormalization", [IMAGE, C4, C4, C4, C3], [IMAGE, C4, C4, C4, C4], "variance"),
    by_inputs("InstanceNormalization", [IMAGE, C3, C3], [IMAGE, C4, C4], "the scale"),
    by_attributes(
        "GroupNormalization", [IMAGE, C4, C4], {"num_groups": 3}, {"num_groups": 2}, "3 groups"
    ),
    by_attributes(
        "GroupNormalization", [IMAGE, C4, C4], {"num_groups": 0}, {"num_groups": 1}, "0 groups"
    ),
    by_attributes(
        "GroupNormalization",
        [IMAGE, C4, C4],
        {"num_groups": 2, "stash_type": 5},
        {"num_groups": 2, "stash_type": 10},
        "stash_type",
    ),
    by_inputs(
        "GroupNormalization",
        [IMAGE, "float16[4]", C4],
        [IMAGE, C4, C4],
        "one element type",
        num_groups=2,
    ),
    by_inputs("LayerNormalization", ["float32[3,500]", C4], ["float32[3,4]", C4], "the scale"),
    by_inputs("LayerNormalization", [X, C4, C3], [X, C4, C4], "the offset"),
    by_inputs("RMSNormalization", ["float32[3,5000]", C4], ["float32[3,4]", C4], "the scale"),
    by_attributes("LRN", [IMAGE], {"size": 0}, {"size": 1}, "size is 0"),
    by_inputs(
        "RotaryEmbedding",
        ["float32[1,2,3,8]", "float32[9,3]", "float32[9,3]", "int64[1,3]"],
        ["float32[1,2,3,8]", "float32[9,4]", "float32[9,4]", "int64[1,3]"],
        "cosines",
    ),
    by_inputs(
        "RotaryEmbedding",
        ["float32[1,2,3,8]", "float32[9,4]", "float32[9,4]", "int64[1,2]"],
        ["float32[1,2,3,8]", "float32[9,4]", "float32[9,4]", "int64[1,3]"],
        "positions",
    ),
]
Q, K = "float32[1,2,3,8]", "float32[1,2,5,8]"
SEQUENCES = [
    by_inputs("Attention", [Q, K, "float32[1,2,500,8]"], [Q, K, K], "number of values"),
    by_inputs("Attention", ["float32[1,2,3,80]", K, K], [Q, K, K], "size of a key"),
    by_inputs("Attention", [Q, "float32[1,3,5,8]", "float32[1,3,5,8]"], [Q, K, K], "share 3 heads"),
    by_inputs("Attention", [Q, K, K, "float32[4,5]"], [Q, K, K, "float32[3,5]"], "the mask"),
    by_inputs("Attention", [Q, K, K, "bool[3,6]"], [Q, K, K, "bool[3,4]"], "the mask"),
    by_inputs("Attention", [Q, K, K, None, K], [Q, K, K, None, K, K], "not both"),
]
STEPS, W, R = "float32[5,2,3]", "float32[1,16,3]", "float32[1,16,4]"
STATE, LENGTHS = "float32[1,2,4]", "int32[2]"
RECURRENT = [
    by_inputs("LSTM", ["float32[5,2,300]", W, R], [STEPS, W, R], "W has"),
    by_attributes(
        "LSTM", [STEPS, W, R], {"hidden_size": 400}, {"hidden_size": 4}, "last length of R"
    ),
    by_attributes("LSTM", [STEPS, W, R], {"direction": "up"}, {"direction": "reverse"}, "'up'"),
    by_attributes(
        "LSTM", [STEPS, W, R], {"direction": "bidirectional"}, {"direction": "forward"}, "W has"
    ),
    by_inputs("LSTM", [STEPS, W, R, "float32[1,8]"], [STEPS, W, R, "float32[1,32]"], "the bias"),
    by_inputs(
        "LSTM",
        ["float32[5,200,3]", W, R, None, None, STATE, STATE],
        [STEPS, W, R, None, None, STATE, STATE],
        "hidden state",
    ),
    by_inputs(
        "LSTM",
        [STEPS, W, R, None, None, STATE, "float32[1,2,3]"],
        [STEPS, W, R, None, None, STATE, STATE],
        "cell state",
    ),
    by_inputs(
        "LSTM", [STEPS, W, R, None, "int32[3]"], [STEPS, W, R, None, LENGTHS], "list of lengths"
    ),
    by_inputs("LSTM", [STEPS, W, R, None, "int64[2]"], [STEPS, W, R, None, LENGTHS], "int32"),
    by_inputs(
        "GRU",
        [STEPS, W, R],
        [STEPS, "float32[1,12,3]", "float32[1,12,4]"],
        "W has",
    ),
    by_inputs("RNN", [STEPS, W, R], [STEPS, "float32[1,4,3]", "float32[1,4,4]"], "W has"),
]
QUANTIZATION = [
    by_inputs("QuantizeLinear", [X, C3], [X, C4], "3 scales"),
    by_inputs("QuantizeLinear", [X, C4, "uint8[3]"], [X, C4, "uint8[4]"], "as many"),
    by_inputs("DequantizeLinear", ["uint8[3,4]", C4], ["uint8[3,4]", C3], "4 scales", axis=0),
    by_inputs("QuantizeLinear", [X, "float32[1,1,1]"], [X, "float32[1,1]"], "more axes"),
    by_attributes("DequantizeLinear", ["uint8[3,4]", C4], {"axis": 9}, {"axis": 1}, "axis 9"),
    by_inputs(
        "DequantizeLinear",
        ["uint8[3,500]", "float32[3,10]"],
        ["uint8[3,500]", "float32[3,250]"],
        "the scale",
        axis=1,
        block_size=2,
    ),
    by_inputs(
        "DequantizeLinear", ["uint8[3,4]", C4, "int8[4]"], ["uint8[3,4]", C4, "uint8[4]"], "uint8"
    ),
    by_inputs("DynamicQuantizeLinear", ["int32[3]"], ["float32[3]"], "float32"),
]
CASES = [
    *AXES,
    *ELEMENTWISE,
    *MOVEMENT,
    *INDICES,
    *PRODUCTS,
    *WINDOWS,
    *NORMALIZATIONS,
    *SEQUENCES,
    *RECURRENT,
    *QUANTIZATION,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_contradiction_is_refused_and_its_neighbour_is_not(case: Case) -> None:
    rule = find_rule(make_node(case.op_type, [], {}))
    assert rule is not None
    node = make_node(case.op_type, case.bad, case.bad_attributes, case.outputs)
    pattern = rf"{case.op_type} \(node 'node'\) cannot be computed: .*{re.escape(case.reason)}"
    with pytest.raises(ContradictionError, match=pattern):
        rule(node, ShapeContent())
    possible = make_node(case.op_type, case.good, case.good_attributes, case.outputs)
    types = rule(possible, ShapeContent())
    assert types is not None
    assert len(types) >= case.outputs


UNKNOWN: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("Reshape", [X, "int64[2]"], {}),
    ("Expand", [X, "int64[?]"], {}),
    ("ReduceSum", [X, "int64[1]"], {"keepdims": 0}),
    ("Squeeze", ["float32[n,4]"], {}),
    ("ConstantOfShape", ["int64[?]"], {}),
    ("OneHot", ["int64[2]", "int64[]", "float32[2]"], {}),
    ("Conv", [IMAGE, "float32[8,4,?,?]"], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), UNKNOWN)
def test_what_cannot_be_told_is_no_contradiction(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    node = make_node(op_type, inputs, attributes)
    rule = find_rule(node)
    assert rule is not None
    assert rule(node, ShapeContent()) is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_open_lengths_contradict_nothing(case: Case) -> None:
    """Of the same nodes with all lengths open only those are refused that are wrong for any."""
    bad = [_opened(given) for given in case.good]
    node = make_node(case.op_type, bad, case.good_attributes, case.outputs)
    rule = find_rule(node)
    assert rule is not None
    rule(node, ShapeContent())


def _opened(given: Given) -> Given:
    return re.sub(r"\d+(?=[,\]])", "?", given) if isinstance(given, str) else given
