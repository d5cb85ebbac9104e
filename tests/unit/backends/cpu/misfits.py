"""Nodes whose inputs, attributes and results contradict each other, and what CPU makes of them.

As a script it runs cases and prints what came of each; a crash ends it. ``pretended`` types are set
by hand, results included, so that no rule has looked at them: only CPU's own layers stand between
them and memory. The other variants are models, which rules see first.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CASES"]

Shape = tuple[int, ...]


class Misfit(NamedTuple):
    """One node: arrays, of which some are constants, and the shapes that its results pretend."""

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    results: tuple[tuple[str, Shape], ...]
    attributes: Mapping[str, Any]
    constants: tuple[int, ...]


def f(*shape: int) -> np.ndarray:
    """Make floats."""
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def i(*numbers: int) -> np.ndarray:
    """Make a row of int64."""
    return np.array(numbers, np.int64)


def misfit(
    op_type: str,
    inputs: Iterable[np.ndarray | None],
    *shapes: Shape,
    constants: tuple[int, ...] = (),
    dtype: str = "float32",
    **attributes: Any,
) -> Misfit:
    """Make a case whose results are all of one type."""
    results = tuple((dtype, shape) for shape in shapes)
    return Misfit(op_type, tuple(inputs), results, attributes, constants)


IMAGE, ZEROS = f(1, 3, 8, 8), np.zeros
CASES: dict[str, Misfit] = {
    "relu of a larger result": misfit("Relu", [f(6)], (2, 3000)),
    "relu of a smaller result": misfit("Relu", [f(6)], (3,)),
    "tanh of a larger result": misfit("Tanh", [f(6)], (3000,)),
    "sum of unlike lengths": misfit("Add", [f(3, 4), f(3, 5)], (3, 5)),
    "sum that is longer": misfit("Add", [f(1), f(1)], (100000,)),
    "choice that is longer": misfit("Where", [ZEROS((1,), bool), f(1), f(4)], (4, 5000)),
    "reshape to more": misfit("Reshape", [f(6), i(2, 3000)], (2, 3000), constants=(1,)),
    "reshape to less": misfit("Reshape", [f(12), i(2, 2)], (2, 2), constants=(1,)),
    "transpose twice": misfit("Transpose", [f(300, 4)], (300, 300), perm=[0, 0]),
    "transpose of fewer": misfit("Transpose", [f(300, 4)], (300,), perm=[1]),
    "concat of unlike": misfit("Concat", [f(3, 4), f(3, 500)], (6, 4), axis=0),
    "concat of more": misfit("Concat", [f(3, 4), f(3, 4)], (600, 4), axis=0),
    "concat elsewhere": misfit("Concat", [f(3, 4), f(3, 4)], (6, 4), axis=7),
    "expand of 4 to 5": misfit("Expand", [f(3, 4), i(3, 5)], (3, 5), constants=(1,)),
    "tile of more": misfit("Tile", [f(3, 4), i(1, 1)], (300, 400), constants=(1,)),
    "split beyond": misfit("Split", [f(5, 4), i(2, 300)], (2, 4), (300, 4), constants=(1,), axis=0),
    "split elsewhere": misfit("Split", [f(5, 4)], (3, 4), (2, 4), axis=9),
    "slice of more": misfit("Slice", [f(30, 4), i(20), i(40), i(0)], (20, 4), constants=(1, 2, 3)),
    "slice in steps of 0": misfit(
        "Slice", [f(30), i(0), i(9), i(0), i(0)], (9,), constants=(1, 2, 3, 4)
    ),
    "gather elsewhere": misfit("Gather", [f(5, 4), i(0, 1, 2)], (3, 4), axis=9),
    "gather by halves": misfit("Gather", [f(5, 4), ZEROS(3, np.float16)], (3, 4), axis=0),
    "gather of more": misfit("Gather", [f(5, 4), i(0, 1)], (200, 4), axis=0),
    "gather of one": misfit("Gather", [f(5, 4), i(0)], (3, 4000), constants=(1,), axis=0),
    "softmax elsewhere": misfit("Softmax", [f(5, 4)], (5, 4), axis=5),
    "softmax of more": misfit("Softmax", [f(5, 4)], (500, 4), axis=-1),
    "sum over axis 7": misfit("ReduceSum", [f(5, 4), i(7)], (1,), constants=(1,)),
    "sum of a smaller result": misfit("ReduceSum", [f(500, 4), i(1)], (1, 1), constants=(1,)),
    "sum of a larger result": misfit("ReduceMax", [f(5, 4), i(1)], (5, 900), constants=(1,)),
    "short scale of a row": misfit("LayerNormalization", [f(3, 500), f(4), f(4)], (3, 500)),
    "short constant scale": misfit(
        "LayerNormalization", [f(3, 500), f(4), f(4)], (3, 500), constants=(1, 2)
    ),
    "short factors": misfit("RMSNormalization", [f(3, 5000), f(4)], (3, 5000)),
    "long factors": misfit("RMSNormalization", [f(3, 4), f(5000)], (3, 4)),
    "short statistics": misfit(
        "BatchNormalization", [f(2, 500, 4, 4), f(3), f(3), f(3), f(3)], (2, 500, 4, 4)
    ),
    "short instance": misfit("InstanceNormalization", [f(2, 50, 4), f(3), f(3)], (2, 50, 4)),
    "no groups": misfit("GroupNormalization", [f(2, 6, 4), f(6), f(6)], (2, 6, 4), num_groups=0),
    "groups that divide nothing": misfit(
        "GroupNormalization", [f(2, 6, 4), f(6), f(6)], (2, 6, 4), num_groups=4
    ),
    "product of unlike": misfit("MatMul", [f(4, 500), f(6, 3)], (4, 3)),
    "product by short weights": misfit("MatMul", [f(4, 500), f(6, 3)], (4, 3), constants=(1,)),
    "product of more": misfit("MatMul", [f(4, 5), f(5, 3)], (400, 300), constants=(1,)),
    "gemm of unlike": misfit("Gemm", [f(4, 500), f(6, 3)], (4, 3)),
    "gemm with a short bias": misfit("Gemm", [f(4, 5), f(5, 300), f(7)], (4, 300)),
    "convolution of other channels": misfit("Conv", [IMAGE, f(4, 500, 3, 3)], (1, 4, 6, 6)),
    "convolution of more": misfit("Conv", [IMAGE, f(4, 3, 3, 3)], (1, 4, 600, 600)),
    "convolution with a short bias": misfit("Conv", [IMAGE, f(4, 3, 3, 3), f(2)], (1, 4, 6, 6)),
    "convolution in no groups": misfit("Conv", [IMAGE, f(4, 3, 3, 3)], (1, 4, 6, 6), group=0),
    "transposed of other channels": misfit(
        "ConvTranspose", [IMAGE, f(500, 3, 3, 3)], (1, 3, 10, 10)
    ),
    "pool of more": misfit("MaxPool", [IMAGE], (1, 3, 700, 700), kernel_shape=[2, 2]),
    "pool of more channels": misfit("MaxPool", [IMAGE], (1, 300, 7, 7), kernel_shape=[2, 2]),
    "pool of fewer axes": misfit("AveragePool", [IMAGE], (1, 3, 7, 7), kernel_shape=[2]),
    "pool that stands": misfit(
        "MaxPool", [IMAGE], (1, 3, 7, 7), kernel_shape=[2, 2], strides=[0, 1]
    ),
    "pool of nothing": misfit("MaxPool", [IMAGE], (1, 3, 8, 7), kernel_shape=[0, 2]),
    "global pool of more": misfit("GlobalMaxPool", [IMAGE], (1, 300, 1, 1)),
    "lstm of other channels": misfit(
        "LSTM", [f(5, 2, 300), f(1, 16, 3), f(1, 16, 4)], (5, 1, 2, 4), hidden_size=4
    ),
    "lstm of other states": misfit(
        "LSTM", [f(5, 2, 3), f(1, 16, 3), f(1, 16, 4)], (5, 1, 200, 4), hidden_size=4
    ),
    "lstm with a short bias": misfit(
        "LSTM", [f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), f(1, 8)], (5, 1, 2, 4), constants=(1, 2, 3)
    ),
    "lstm without steps for so many": misfit(
        "LSTM",
        [f(0, 2, 3), f(1, 16, 3), f(1, 16, 4)],
        (2**32, 1, 2, 4),
        constants=(1, 2),
        hidden_size=4,
    ),
    "lstm with short states": misfit(
        "LSTM",
        [f(5, 200, 3), f(1, 16, 3), f(1, 16, 4), None, None, f(1, 2, 4), f(1, 2, 4)],
        (5, 1, 200, 4),
        constants=(1, 2),
    ),
    "short scales": misfit(
        "QuantizeLinear", [f(3, 500), f(4), ZEROS(4, np.uint8)], (3, 500), dtype="uint8", axis=1
    ),
    "scales along no axis": misfit(
        "DequantizeLinear", [ZEROS((3, 500), np.uint8), f(500)], (3, 500), axis=9
    ),
    "attention of other values": misfit(
        "Attention", [f(1, 2, 3, 8), f(1, 2, 5, 8), f(1, 2, 500, 8)], (1, 2, 3, 8)
    ),
    "attention of other heads": misfit(
        "Attention", [f(1, 2, 3, 8), f(1, 3, 5, 8), f(1, 3, 5, 8)], (1, 2, 3, 8)
    ),
    "attention with a short mask": misfit(
        "Attention", [f(1, 2, 3, 8), f(1, 2, 5, 8), f(1, 2, 5, 8), f(2, 4)], (1, 2, 3, 8)
    ),
    "resize by a place that is none": misfit(
        "Resize",
        [
            f(1, 1, 4, 4),
            np.array([0, 0, 0, np.nan, 1, 1, 1e30, 1], np.float32),
            None,
            i(1, 1, 6, 6),
        ],
        (1, 1, 6, 6),
        constants=(1, 3),
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
    "resize by NaN": misfit(
        "Resize",
        [f(1, 1, 4, 4), None, np.array([1, 1, np.nan, 1e20], np.float32)],
        (1, 1, 4, 4),
        constants=(2,),
        mode="linear",
    ),
    "resize to another size": misfit(
        "Resize", [f(4, 4), None, None, i(6, 6)], (600, 600), constants=(3,)
    ),
    "pad of more": misfit("Pad", [f(3, 4), i(1, 1, 1, 1)], (500, 600), constants=(1,)),
    "pad of half of the axes": misfit("Pad", [f(3, 4), i(1, 1)], (5, 4), constants=(1,)),
    "blocks of 0": misfit("DepthToSpace", [f(1, 4, 5, 5)], (1, 4, 5, 5), blocksize=0),
    "blocks of 3": misfit("SpaceToDepth", [f(1, 4, 5, 5)], (1, 36, 2, 2), blocksize=3),
    "cast of more": misfit("Cast", [f(5)], (500,), dtype="float16", to=10),
    "scatter into more": misfit(
        "ScatterElements", [f(3, 4), ZEROS((1, 2), np.int64), f(1, 2)], (300, 4)
    ),
    "cumulated more": misfit("CumSum", [f(3), np.array(0)], (3000,), constants=(1,)),
    "a shape's worth of more": misfit("ConstantOfShape", [i(2, 3)], (200, 300), constants=(0,)),
}


def outcome(case: Misfit) -> str:
    """Lower the node with the types that it pretends and run it; say what came of it."""
    from aioinfer.backends.cpu.kernels.registry import KERNELS
    from aioinfer.errors import AioInferError
    from aioinfer.runtime.graph import DType, Node, TensorType, Value
    from unit.backends.cpu.single_nodes import model_of_nodes, plan_of, run_plan, value_of

    values = [
        None if array is None else value_of(f"x{k}", array, is_constant=k in case.constants)
        for k, array in enumerate(case.inputs)
    ]
    results = [
        Value(f"y{k}", TensorType(DType.of(np.dtype(dtype)), shape))
        for k, (dtype, shape) in enumerate(case.results)
    ]
    node = Node(case.op_type, values, results, dict(case.attributes), name="node")
    reason = KERNELS.find_unsupported(node)
    if reason is not None:
        return f"refused: {reason}"
    given = [value for value in values if value is not None and not value.is_constant]
    arrays = [
        array
        for array, value in zip(case.inputs, values, strict=True)
        if array is not None and value in given
    ]
    try:
        run_plan(plan_of(model_of_nodes([node], given, results)), arrays)
    except AioInferError as error:
        return f"refused: {error}"
    return "ran"


def outcome_of_model(case: Misfit, variant: str) -> str:
    """Load the node as a model and run it; what is not refused has to be REFERENCE's answer.

    ``variant``: the shapes of its inputs are open or static, and those of results are not told, or
    declared as the case pretends.
    """
    from onnx import helper, numpy_helper

    from aioinfer import Core
    from aioinfer.errors import AioInferError

    arrays = {f"x{k}": array for k, array in enumerate(case.inputs) if array is not None}
    constants = {f"x{k}" for k in case.constants}
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{axis}" if variant == "open" else n for axis, n in enumerate(array.shape)],
        )
        for name, array in arrays.items()
        if name not in constants
    ]
    outputs = [
        helper.make_tensor_value_info(
            f"y{k}",
            helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
            shape if variant == "declared" else None,
        )
        for k, (dtype, shape) in enumerate(case.results)
    ]
    names = ["" if array is None else f"x{k}" for k, array in enumerate(case.inputs)]
    made = [output.name for output in outputs]
    node = helper.make_node(case.op_type, names, made, "node", **case.attributes)
    weights = [numpy_helper.from_array(arrays[name], name) for name in sorted(constants)]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    given = {value.name: arrays[value.name] for value in inputs}
    results = []
    for device in ("CPU", "REFERENCE"):
        try:
            with Core() as core, core.load_network(model, device) as network:
                request = network.create_infer_request()
                results.append(list(request.infer_sync(given, deadline_s=20).values()))
        except AioInferError as error:
            if device == "CPU":
                return f"refused: {error}"
            return f"ran, and REFERENCE says {error}"
    own, wanted = results
    for mine, right in zip(own, wanted, strict=True):
        if mine.shape != right.shape or not np.allclose(mine, right, atol=1e-3, equal_nan=True):
            return f"ran, to {mine.shape}, and REFERENCE to {right.shape}"
    return "right"


def outcomes(variant: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Give the name of each case before it is tried, with no text, and then what came of it."""
    for name in names:
        yield name, ""
        case = CASES[name]
        try:
            is_lie = variant == "pretended"
            yield name, outcome(case) if is_lie else outcome_of_model(case, variant)
        except BaseException as error:
            yield name, f"raised {type(error).__name__}: {error}"


if __name__ == "__main__":
    faulthandler.enable()
    signal.alarm(50)
    for tried, text in outcomes(sys.argv[1], sys.argv[2:]):
        print(f"{tried}\t{text}".replace("\n", " "), flush=True)
